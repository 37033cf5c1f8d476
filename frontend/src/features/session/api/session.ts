import { queryOptions, useMutation, useQueryClient } from '@tanstack/react-query';
import { createSession, endSession, readSession } from '@/api/generated';
import { setCsrfToken } from '@/lib/api-client';

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  staleTime: Infinity,
  retry: false,
  queryFn: async ({ signal }) => {
    const { data } = await readSession({ throwOnError: true, signal });
    setCsrfToken(data.csrf_token);
    return data;
  },
});

/** Exchanges the one-time code of the login link for a session. */
export function useLogin() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (code: string) => {
      const { data } = await createSession({ body: { code }, throwOnError: true });
      return data;
    },
    onSuccess: (session) => {
      setCsrfToken(session.csrf_token);
      queryClient.clear();
      queryClient.setQueryData(sessionQuery.queryKey, session);
    },
  });
}

export function useLogout() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async () => {
      await endSession({ throwOnError: true });
    },
    onSuccess: () => {
      setCsrfToken(null);
      queryClient.clear();
    },
  });
}
