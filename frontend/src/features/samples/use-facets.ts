import { useQueries } from '@tanstack/react-query';
import { facetsQuery, type Facet, type SampleScope } from '@/features/samples/api/samples';
import { buildFilter, withoutColumn } from '@/lib/filters';

/**
 * Counts for each column under the filters of all *other* columns, so that a picked value still
 * shows what its neighbours hold: one request for the columns without a pick, one for each with.
 */
export function useFacets(scope: SampleScope, columns: readonly string[]): Map<string, Facet> {
  const picked = columns.filter((column) => (scope.picks[column]?.length ?? 0) > 0);
  const others = columns.filter((column) => !picked.includes(column));
  const results = useQueries({
    queries: [
      facetsQuery(scope, others, buildFilter(scope.text, scope.picks)),
      ...picked.map((column) => {
        return facetsQuery(
          scope,
          [column],
          buildFilter(scope.text, withoutColumn(scope.picks, column)),
        );
      }),
    ],
  });
  const facets = new Map<string, Facet>();
  for (const { data } of results) {
    for (const facet of data?.facets ?? []) facets.set(facet.column, facet);
  }
  return facets;
}
