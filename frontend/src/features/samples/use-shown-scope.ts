import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { samplesPageQuery, type SampleScope } from '@/features/samples/api/samples';

/** While a new filter is asked for, the grid goes on showing the last one that was answered. */
export function useShownScope(scope: SampleScope) {
  const asked = useQuery(samplesPageQuery(scope, 0));
  const [answered, setAnswered] = useState<SampleScope | null>(null);
  if (asked.data !== undefined && answered !== scope) setAnswered(scope);
  const shown = asked.data !== undefined || answered === null ? scope : answered;
  const page = useQuery({ ...samplesPageQuery(shown, 0), enabled: shown === scope });
  return {
    shown,
    total: page.data?.total ?? page.data?.items.length,
    error: asked.error,
    isStale: shown !== scope,
    refetch: () => void asked.refetch(),
  };
}
