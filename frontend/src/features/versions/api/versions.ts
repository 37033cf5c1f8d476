import { queryOptions } from '@tanstack/react-query';
import { listVersions, type VersionRead } from '@/api/generated';

export type Version = VersionRead;

export const versionsQuery = (slug: string) =>
  queryOptions({
    queryKey: ['versions', slug],
    queryFn: async ({ signal }) => {
      const { data } = await listVersions({
        path: { dataset: slug },
        query: { limit: 200 },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });
