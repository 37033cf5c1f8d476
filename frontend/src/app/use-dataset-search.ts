import { useNavigate, useSearch } from '@tanstack/react-router';
import type { DatasetSearch } from '@/app/dataset-search';

/** Reads and changes the address of the dataset page; a field set to undefined leaves it. */
export function useDatasetSearch() {
  const search = useSearch({ from: '/shell/datasets/$slug/{-$tab}' });
  const navigate = useNavigate({ from: '/datasets/$slug/{-$tab}' });
  const change = (
    next: { [K in keyof DatasetSearch]?: DatasetSearch[K] | undefined },
    { isReplacing = false }: { isReplacing?: boolean } = {},
  ) => {
    void navigate({
      search: (old: DatasetSearch) => withoutUndefined({ ...old, ...next }),
      replace: isReplacing,
      resetScroll: false,
    });
  };
  return { search, change };
}

function withoutUndefined(search: Record<string, unknown>): DatasetSearch {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined));
}
