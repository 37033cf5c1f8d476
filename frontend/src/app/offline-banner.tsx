import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { OfflineIcon } from '@/components/icons';
import { OfflineError } from '@/lib/problem';
import { useStreamState } from '@/lib/events/use-events';
import classes from './offline-banner.module.css';

/** Shown while no request reaches the server; what is on the page stays readable. */
export function OfflineBanner() {
  const queryClient = useQueryClient();
  const isOffline = useIsServerLost();
  if (!isOffline) return null;
  return (
    <div role="alert" className={classes.root}>
      <OfflineIcon />
      <span>
        The Penstock server does not answer. This page shows what it last knew and tries again by
        itself.
      </span>
      <Button
        size="xs"
        variant="default"
        onClick={() => void queryClient.refetchQueries({ type: 'active' })}
      >
        Try now
      </Button>
    </div>
  );
}

function useIsServerLost(): boolean {
  const queryClient = useQueryClient();
  const [hasFailed, setHasFailed] = useState(false);
  const streamState = useStreamState();
  useEffect(() => {
    const cache = queryClient.getQueryCache();
    return cache.subscribe((event) => {
      if (event.type !== 'updated') return;
      if (event.action.type === 'success') setHasFailed(false);
      else if (event.action.type === 'failed' && event.action.error instanceof OfflineError) {
        setHasFailed(true);
      }
    });
  }, [queryClient]);
  return hasFailed && streamState !== 'open';
}
