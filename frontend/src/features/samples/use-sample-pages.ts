import { useQueries } from '@tanstack/react-query';
import {
  type Sample,
  SAMPLES_A_PAGE,
  samplesPageQuery,
  type SampleScope,
} from '@/features/samples/api/samples';

/** Reads the pages that hold the given range and returns the look-up of a sample by its place. */
export function useSamplePages(
  scope: SampleScope,
  [firstIndex, lastIndex]: readonly [number, number],
  isPaused: boolean,
): (index: number) => Sample | undefined {
  const firstPage = Math.floor(firstIndex / SAMPLES_A_PAGE);
  const lastPage = Math.floor(Math.max(firstIndex, lastIndex) / SAMPLES_A_PAGE);
  const results = useQueries({
    queries: Array.from({ length: lastPage - firstPage + 1 }, (_, offset) => ({
      ...samplesPageQuery(scope, firstPage + offset),
      enabled: !isPaused,
    })),
  });
  return (index) => {
    const page = Math.floor(index / SAMPLES_A_PAGE);
    return results[page - firstPage]?.data?.items[index - page * SAMPLES_A_PAGE];
  };
}
