import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import {
  getFacets,
  getSample,
  listSamples,
  type FacetRead,
  type SampleDetail,
  type SampleRead,
} from '@/api/generated';
import { buildFilter, type Picks } from '@/lib/filters';

export type Facet = FacetRead;
export type Sample = SampleRead;
export type { SampleDetail };

export const SAMPLES_A_PAGE = 100;
export const RANDOM_ORDER = 'random';

/** Which samples of which version, and in which order. */
export interface SampleScope {
  slug: string;
  version: number;
  text: string;
  picks: Picks;
  order: string;
  seed: number;
}

export const samplesPageQuery = (scope: SampleScope, page: number) =>
  queryOptions({
    queryKey: ['samples', scope.slug, scope.version, 'page', scope, page],
    // A version never changes, so neither does a page of it.
    staleTime: Infinity,
    gcTime: 5 * 60_000,
    queryFn: async ({ signal }) => {
      const { data } = await listSamples({
        path: { dataset: scope.slug, version: String(scope.version) },
        query: {
          filter: buildFilter(scope.text, scope.picks),
          order: scope.order,
          seed: scope.seed,
          offset: page * SAMPLES_A_PAGE,
          limit: SAMPLES_A_PAGE,
        },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

export const sampleQuery = (slug: string, version: number, sampleId: string) =>
  queryOptions({
    queryKey: ['samples', slug, version, 'one', sampleId],
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      const { data } = await getSample({
        path: { dataset: slug, version: String(version), sample_id: sampleId },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

export const facetsQuery = (
  target: { slug: string; version: number },
  columns: readonly string[],
  filter: string | undefined,
) =>
  queryOptions({
    queryKey: ['samples', target.slug, target.version, 'facets', columns, filter],
    staleTime: Infinity,
    enabled: columns.length > 0,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      const { data } = await getFacets({
        path: { dataset: target.slug, version: String(target.version) },
        query: { columns: columns.join(','), filter },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });
