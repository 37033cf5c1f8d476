import { queryOptions, useMutation, useQueryClient } from '@tanstack/react-query';
import {
  createToken,
  listTokens,
  revokeToken,
  type TokenCreated,
  type TokenRead,
} from '@/api/generated';
import { idempotencyKey } from '@/lib/api-client';

export type Token = TokenRead;
export type { TokenCreated };

const TOKENS_KEY = ['tokens'] as const;

export const tokensQuery = queryOptions({
  queryKey: TOKENS_KEY,
  queryFn: async ({ signal }) => {
    const { data } = await listTokens({ query: { limit: 200 }, throwOnError: true, signal });
    return data;
  },
});

interface NewToken {
  name: string;
  expiresInDays: number | null;
}

export function useCreateToken() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async ({ name, expiresInDays }: NewToken) => {
      const { data } = await createToken({
        headers: { 'Idempotency-Key': idempotencyKey() },
        body: { name, ...(expiresInDays === null ? {} : { expires_in_days: expiresInDays }) },
        throwOnError: true,
      });
      return data;
    },
    onSuccess: () => queryClient.invalidateQueries({ queryKey: TOKENS_KEY }),
  });
}

export function useRevokeToken() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (tokenId: string) => {
      await revokeToken({ path: { token_id: tokenId }, throwOnError: true });
    },
    onSuccess: () => queryClient.invalidateQueries({ queryKey: TOKENS_KEY }),
  });
}
