import { queryOptions, useMutation, useQueryClient } from '@tanstack/react-query';
import {
  createSplit,
  listSplits,
  type SplitRead,
  type SplitRecipe,
  type SubsetRead,
} from '@/api/generated';
import { idempotencyKey } from '@/lib/api-client';

export type Recipe = SplitRecipe;
export type Split = SplitRead;
export type Subset = SubsetRead;

const splitsKey = (slug: string) => ['splits', slug] as const;

export const splitsQuery = (slug: string) =>
  queryOptions({
    queryKey: splitsKey(slug),
    queryFn: async ({ signal }) => {
      const { data } = await listSplits({
        path: { dataset: slug },
        query: { limit: 200 },
        throwOnError: true,
        signal,
      });
      return data;
    },
  });

interface NewSplit {
  name: string;
  version: number;
  recipe: Recipe;
}

export function useCreateSplit(slug: string) {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (split: NewSplit) => {
      const { data } = await createSplit({
        path: { dataset: slug },
        headers: { 'Idempotency-Key': idempotencyKey() },
        body: split,
        throwOnError: true,
      });
      return data;
    },
    onSuccess: () =>
      Promise.all([
        queryClient.invalidateQueries({ queryKey: splitsKey(slug) }),
        queryClient.invalidateQueries({ queryKey: ['datasets', 'one', slug] }),
      ]),
  });
}
