import { useRouter, type ErrorComponentProps } from '@tanstack/react-router';
import { PageHeader } from '@/components/page-header';
import { ProblemAlert } from '@/components/problem-alert';

/** One boundary for every route: what failed, and a way on. */
export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    reset();
    void router.invalidate();
  };
  return (
    <main>
      <PageHeader title="This page could not be shown" />
      <ProblemAlert error={error} onRetry={retry} />
    </main>
  );
}
