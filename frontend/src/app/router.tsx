import type { QueryClient } from '@tanstack/react-query';
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
  type RouterHistory,
} from '@tanstack/react-router';
import { LoginRoute } from '@/app/routes/login';
import { NotFoundRoute } from '@/app/routes/not-found';
import { RouteError } from '@/app/routes/route-error';
import { ShellRoute } from '@/app/routes/shell';
import { readDatasetSearch } from '@/app/dataset-search';
import { datasetTabs } from '@/config/paths';
import { sessionQuery } from '@/features/session/api/session';
import { isUnauthenticated } from '@/lib/problem';

interface RouterContext {
  queryClient: QueryClient;
}

const rootRoute = createRootRouteWithContext<RouterContext>()({
  notFoundComponent: NotFoundRoute,
});

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/login',
  validateSearch: (search: Record<string, unknown>): { return_to?: string } =>
    typeof search.return_to === 'string' ? { return_to: search.return_to } : {},
  component: LoginRoute,
});

const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  beforeLoad: async ({ context, location }) => {
    try {
      await context.queryClient.ensureQueryData(sessionQuery);
    } catch (error) {
      if (!isUnauthenticated(error)) throw error;
      throw redirect({ to: '/login', search: { return_to: location.href }, replace: true });
    }
  },
  component: ShellRoute,
  errorComponent: RouteError,
});

const indexRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/datasets', replace: true });
  },
});

const datasetsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/datasets',
  validateSearch: (search: Record<string, unknown>): { query?: string } =>
    typeof search.query === 'string' && search.query !== '' ? { query: search.query } : {},
  component: lazyRouteComponent(() => import('@/app/routes/datasets'), 'DatasetsRoute'),
});

const datasetRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/datasets/$slug/{-$tab}',
  params: {
    parse: ({ slug, tab }: { slug: string; tab?: string }) => ({
      slug,
      tab: datasetTabs.find((known) => known === tab),
    }),
  },
  validateSearch: readDatasetSearch,
  component: lazyRouteComponent(() => import('@/app/routes/dataset'), 'DatasetRoute'),
});

const liveRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/live',
  component: lazyRouteComponent(() => import('@/app/routes/live'), 'LiveRoute'),
});

const runRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/live/$runId',
  component: lazyRouteComponent(() => import('@/app/routes/live'), 'RunRoute'),
});

const jobsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/jobs',
  component: lazyRouteComponent(() => import('@/app/routes/jobs'), 'JobsRoute'),
});

const jobRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/jobs/$jobId',
  component: lazyRouteComponent(() => import('@/app/routes/jobs'), 'JobRoute'),
});

const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/settings',
  component: lazyRouteComponent(() => import('@/app/routes/settings'), 'SettingsRoute'),
});

const routeTree = rootRoute.addChildren([
  loginRoute,
  shellRoute.addChildren([
    indexRoute,
    datasetsRoute,
    datasetRoute,
    liveRoute,
    runRoute,
    jobsRoute,
    jobRoute,
    settingsRoute,
  ]),
]);

export function createAppRouter(queryClient: QueryClient, history?: RouterHistory) {
  return createRouter({
    routeTree,
    context: { queryClient },
    ...(history === undefined ? {} : { history }),
    defaultPreload: 'intent',
    defaultErrorComponent: RouteError,
    defaultNotFoundComponent: NotFoundRoute,
    scrollRestoration: true,
  });
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createAppRouter>;
  }
}
