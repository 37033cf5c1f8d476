import { keepPreviousData, queryOptions, useQueryClient } from '@tanstack/react-query';
import { useCallback } from 'react';
import { getDataset, listDatasets, type DatasetRead } from '@/api/generated';
import { useServerEvent } from '@/lib/events/use-events';

export type Dataset = DatasetRead;

const PAGE_SIZE = 100;

export const datasetKeys = {
  all: ['datasets'] as const,
  list: (query: string) => [...datasetKeys.all, 'list', query] as const,
  one: (slug: string) => [...datasetKeys.all, 'one', slug] as const,
};

export const datasetsQuery = (query: string) =>
  queryOptions({
    queryKey: datasetKeys.list(query),
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      const { data } = await listDatasets({
        query: { limit: PAGE_SIZE, ...(query === '' ? {} : { query }) },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

export const datasetQuery = (slug: string) =>
  queryOptions({
    queryKey: datasetKeys.one(slug),
    queryFn: async ({ signal }) => {
      const { data } = await getDataset({
        path: { dataset: slug },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

interface DatasetEvent {
  slug: string;
  change: string;
}

/** A changed dataset is read again, with its versions and splits. */
export function useDatasetEvents(): void {
  const queryClient = useQueryClient();
  useServerEvent<DatasetEvent>(
    'dataset',
    useCallback(
      ({ slug }) => {
        void queryClient.invalidateQueries({ queryKey: [...datasetKeys.all, 'list'] });
        void queryClient.invalidateQueries({ queryKey: datasetKeys.one(slug) });
        void queryClient.invalidateQueries({ queryKey: ['versions', slug] });
        void queryClient.invalidateQueries({ queryKey: ['splits', slug] });
      },
      [queryClient],
    ),
  );
}
