import type { StreamState } from '@/lib/events/hub';
import { useStreamState } from '@/lib/events/use-events';
import classes from './stream-light.module.css';

const TEXTS: Record<StreamState, string> = {
  off: 'Updates paused',
  connecting: 'Connecting',
  open: 'Live updates on',
  unauthenticated: 'Logged out',
};

export function StreamLight() {
  const state = useStreamState();
  return (
    <span className={classes.root} data-state={state}>
      <span className={classes.dot} aria-hidden="true" />
      {TEXTS[state]}
    </span>
  );
}
