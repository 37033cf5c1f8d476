import { createContext, use, useEffect, useSyncExternalStore } from 'react';
import type { EventHub, StreamState } from '@/lib/events/hub';

export const EventHubContext = createContext<EventHub | null>(null);

const noState = () => () => undefined;
const off = (): StreamState => 'off';

/** Calls `listener` with the parsed data of each event of this name. */
export function useServerEvent<T>(event: string, listener: (data: T) => void): void {
  const hub = use(EventHubContext);
  useEffect(
    () =>
      hub?.on(event, (data) => {
        listener(data as T);
      }),
    [hub, event, listener],
  );
}

export function useStreamState(): StreamState {
  const hub = use(EventHubContext);
  return useSyncExternalStore(hub?.onState ?? noState, hub ? () => hub.state : off);
}
