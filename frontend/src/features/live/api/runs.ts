import {
  keepPreviousData,
  queryOptions,
  useQueryClient,
  type QueryClient,
} from '@tanstack/react-query';
import { useCallback } from 'react';
import { listRuns, readRun, type LoaderRead, type RunPoint, type RunRead } from '@/api/generated';
import { appendPoint, seriesFromPoints, type SeriesPoint } from '@/features/live/series';
import { useServerEvent } from '@/lib/events/use-events';

export type Loader = LoaderRead;
export type Run = RunRead;
export type { RunPoint };

const LISTED_MINUTES = 24 * 60;

export const runKeys = {
  all: ['runs'] as const,
  list: () => [...runKeys.all, 'list'] as const,
  one: (runId: string) => [...runKeys.all, 'one', runId] as const,
  series: (runId: string, minutes: number) => [...runKeys.all, 'series', runId, minutes] as const,
};

export const runsQuery = queryOptions({
  queryKey: runKeys.list(),
  // Events carry each point; this finds runs that went silent, which send no events.
  refetchInterval: 10_000,
  queryFn: async ({ signal }) => {
    const { data } = await listRuns({
      query: { since_minutes: LISTED_MINUTES, limit: 100 },
      throwOnError: true,
      signal,
    });
    return data;
  },
});

export const runQuery = (runId: string) =>
  queryOptions({
    queryKey: runKeys.one(runId),
    refetchInterval: 10_000,
    queryFn: async ({ signal }) => {
      const { data } = await readRun({
        path: { run_id: runId },
        query: { minutes: 1 },
        throwOnError: true,
        signal,
      });
      return data as Run;
    },
  });

export const seriesQuery = (runId: string, minutes: number) =>
  queryOptions({
    queryKey: runKeys.series(runId, minutes),
    staleTime: 60_000,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }): Promise<SeriesPoint[]> => {
      const { data } = await readRun({
        path: { run_id: runId },
        query: { minutes },
        throwOnError: true,
        signal,
      });
      return seriesFromPoints(data.points);
    },
  });

/** Moves the cards and charts with each run event; a new run makes the list read again. */
export function useRunEvents(): void {
  const queryClient = useQueryClient();
  useServerEvent<Run>(
    'run',
    useCallback(
      (run) => {
        applyRun(queryClient, run);
      },
      [queryClient],
    ),
  );
}

function applyRun(queryClient: QueryClient, run: Run): void {
  if (queryClient.getQueryData(runKeys.one(run.id)) !== undefined) {
    queryClient.setQueryData(runKeys.one(run.id), run);
  }
  const page = queryClient.getQueryData(runsQuery.queryKey);
  if (page !== undefined) {
    if (page.items.some(({ id }) => id === run.id)) {
      const items = page.items.map((other) => (other.id === run.id ? run : other));
      queryClient.setQueryData(runsQuery.queryKey, { ...page, items });
    } else void queryClient.invalidateQueries({ queryKey: runKeys.list() });
  }
  const charts = queryClient.getQueriesData<SeriesPoint[]>({
    queryKey: [...runKeys.all, 'series', run.id],
  });
  for (const [key, series] of charts) {
    if (series === undefined) continue;
    queryClient.setQueryData(key, appendPoint(series, run, Number(key[3]) * 60));
  }
}
