import type {
  DatasetRead,
  JobRead,
  RunPoint,
  RunRead,
  SampleRead,
  SplitRead,
  TokenRead,
  VersionRead,
} from '@/api/generated';
import {
  makeDataset,
  makeJob,
  makePoint,
  makeRun,
  makeSample,
  makeSplit,
  makeToken,
  makeVersion,
} from '@/testing/fixtures';

interface Database {
  isLoggedIn: boolean;
  datasets: DatasetRead[];
  versions: VersionRead[];
  samples: SampleRead[];
  splits: SplitRead[];
  jobs: JobRead[];
  runs: RunRead[];
  points: RunPoint[];
  tokens: TokenRead[];
}

function fresh(): Database {
  const samples = Array.from({ length: 250 }, (_, index) => makeSample(index));
  return {
    isLoggedIn: true,
    datasets: [makeDataset()],
    versions: [makeVersion()],
    samples,
    splits: [makeSplit()],
    jobs: [makeJob()],
    runs: [makeRun()],
    points: [makePoint({ at: new Date(Date.now() - 4000).toISOString() })],
    tokens: [makeToken()],
  };
}

/** What the mock server holds; a test changes it before it renders, and finds it new in the next. */
export const database: Database = fresh();

export function resetDatabase(): void {
  Object.assign(database, fresh());
}
