import type { Picks } from '@/lib/filters';

/** What the address of a dataset holds, so that a link shows the same samples to another person. */
export interface DatasetSearch {
  version?: number;
  filter?: string;
  picks?: Picks;
  order?: string;
  seed?: number;
  sample?: string;
}

export function readDatasetSearch(search: Record<string, unknown>): DatasetSearch {
  const { version, filter, picks, order, seed, sample } = search;
  return {
    ...(typeof version === 'number' && version > 0 ? { version } : {}),
    ...(typeof filter === 'string' && filter !== '' ? { filter } : {}),
    ...(isPicks(picks) ? { picks } : {}),
    ...(typeof order === 'string' && order !== '' ? { order } : {}),
    ...(typeof seed === 'number' && Number.isSafeInteger(seed) ? { seed } : {}),
    ...(typeof sample === 'string' ? { sample } : {}),
  };
}

function isPicks(value: unknown): value is Picks {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.values(value).every((list) => Array.isArray(list)) &&
    Object.keys(value).length > 0
  );
}
