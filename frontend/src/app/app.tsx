import type { QueryClient } from '@tanstack/react-query';
import { type RouterHistory, RouterProvider } from '@tanstack/react-router';
import { useState } from 'react';
import { AppProviders } from '@/app/providers';
import { createAppRouter } from '@/app/router';
import { createQueryClient } from '@/lib/query-client';

/** The parts that live as long as the page; tests give a history of their own. */
export function createApp({ history }: { history?: RouterHistory } = {}) {
  const queryClient: QueryClient = createQueryClient(() => {
    const { pathname, href } = router.state.location;
    if (pathname !== '/login') {
      void router.navigate({ to: '/login', search: { return_to: href }, replace: true });
    }
  });
  const router = createAppRouter(queryClient, history);
  return { queryClient, router };
}

export function App({ app: given }: { app?: ReturnType<typeof createApp> }) {
  const [app] = useState(() => given ?? createApp());
  return (
    <AppProviders queryClient={app.queryClient}>
      <RouterProvider router={app.router} />
    </AppProviders>
  );
}
