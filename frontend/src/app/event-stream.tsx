import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useEffect, useState } from 'react';
import { paths } from '@/config/paths';
import { sessionQuery } from '@/features/session/api/session';
import { useDatasetEvents } from '@/features/datasets/api/datasets';
import { useJobEvents } from '@/features/jobs/api/jobs';
import { useRunEvents } from '@/features/live/api/runs';
import { EventHub } from '@/lib/events/hub';
import { EventHubContext } from '@/lib/events/use-events';

/** Holds the browser's one event stream while somebody is logged in. */
export function EventStream({ children }: { children: ReactNode }) {
  const queryClient = useQueryClient();
  const [hub] = useState(
    () => new EventHub({ url: `${paths.apiEvents}?topics=jobs,runs,datasets` }),
  );
  useEffect(() => {
    const stopWake = hub.onWake(() => {
      void queryClient.invalidateQueries({
        predicate: ({ queryKey }) => queryKey[0] !== 'samples',
      });
    });
    const stopState = hub.onState(() => {
      // Asks for the session again, whose refusal leads to the login page.
      if (hub.state === 'unauthenticated') {
        void queryClient.refetchQueries({ queryKey: sessionQuery.queryKey });
      }
    });
    const stop = hub.start();
    return () => {
      stop();
      stopState();
      stopWake();
    };
  }, [hub, queryClient]);
  return (
    <EventHubContext value={hub}>
      <EventSync />
      {children}
    </EventHubContext>
  );
}

function EventSync() {
  useDatasetEvents();
  useJobEvents();
  useRunEvents();
  return null;
}
