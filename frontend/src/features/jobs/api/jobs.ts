import {
  keepPreviousData,
  queryOptions,
  useMutation,
  useQueryClient,
  type QueryClient,
} from '@tanstack/react-query';
import { useCallback } from 'react';
import { cancelJob, listJobs, readJob, type JobRead } from '@/api/generated';
import { useServerEvent } from '@/lib/events/use-events';

export type Job = JobRead;
export type JobState = Job['state'];

export const jobKeys = {
  all: ['jobs'] as const,
  list: (state: string) => [...jobKeys.all, 'list', state] as const,
  one: (jobId: string) => [...jobKeys.all, 'one', jobId] as const,
};

const ACTIVE: readonly JobState[] = ['queued', 'running'];

export const isActive = (state: JobState): boolean => ACTIVE.includes(state);

export const jobsQuery = (state: string) =>
  queryOptions({
    queryKey: jobKeys.list(state),
    placeholderData: keepPreviousData,
    // The event stream moves the bars; this only mends what a broken stream has missed.
    refetchInterval: 30_000,
    queryFn: async ({ signal }) => {
      const { data } = await listJobs({
        query: { limit: 100, ...(state === '' ? {} : { state: state as JobState }) },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

export const jobQuery = (jobId: string) =>
  queryOptions({
    queryKey: jobKeys.one(jobId),
    queryFn: async ({ signal }) => {
      const { data } = await readJob({ path: { job_id: jobId }, throwOnError: true, signal });
      return data;
    },
  });

export function useCancelJob() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (jobId: string) => {
      await cancelJob({ path: { job_id: jobId }, throwOnError: true });
    },
    onSettled: () => queryClient.invalidateQueries({ queryKey: jobKeys.all }),
  });
}

/** Puts each job event into the lists and the open job; an unknown job makes the lists read again. */
export function useJobEvents(): void {
  const queryClient = useQueryClient();
  useServerEvent<Job>(
    'job',
    useCallback(
      (job) => {
        applyJob(queryClient, job);
      },
      [queryClient],
    ),
  );
}

function applyJob(queryClient: QueryClient, job: Job): void {
  queryClient.setQueryData(jobQuery(job.id).queryKey, job);
  const lists = queryClient.getQueriesData<{ items: Job[] }>({
    queryKey: [...jobKeys.all, 'list'],
  });
  for (const [key, page] of lists) {
    if (page === undefined) continue;
    const isKnown = page.items.some(({ id }) => id === job.id);
    const isFiltered = key[2] !== '';
    if (!isKnown || isFiltered) void queryClient.invalidateQueries({ queryKey: key });
    if (isKnown) {
      queryClient.setQueryData(key, {
        ...page,
        items: page.items.map((other) => (other.id === job.id ? job : other)),
      });
    }
  }
}
