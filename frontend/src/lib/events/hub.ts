import { createLeadership, pause, type Leadership } from '@/lib/events/leadership';
import type { ServerEvent } from '@/lib/events/sse-parser';
import { readStream } from '@/lib/events/stream';

export type StreamState = 'off' | 'connecting' | 'open' | 'unauthenticated';

interface HubOptions {
  url: string;
  leadership?: Leadership;
  firstRetryMilliseconds?: number;
}

type Message =
  { kind: 'event'; event: ServerEvent } | { kind: 'state'; state: StreamState } | { kind: 'hello' };

type Listener = (data: unknown) => void;

const CHANNEL = 'penstock-events';
const LONGEST_RETRY_MILLISECONDS = 30_000;

/**
 * Events of the server for all tabs over one connection: the visible tab that leads reads the
 * stream and hands each event to the others. Hidden tabs neither lead nor listen.
 */
export class EventHub {
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly stateListeners = new Set<() => void>();
  private readonly wakeListeners = new Set<() => void>();
  private readonly options: HubOptions;
  private readonly leadership: Leadership;
  private channel: BroadcastChannel | null = null;
  private life: AbortController | null = null;
  private isLeader = false;
  private lastEventId: string | null = null;
  private currentState: StreamState = 'off';

  constructor(options: HubOptions) {
    this.options = options;
    this.leadership = options.leadership ?? createLeadership();
  }

  get state(): StreamState {
    return this.currentState;
  }

  /** Starts listening and follows the visibility of the tab; returns what stops it. */
  start(): () => void {
    const follow = () => {
      if (document.visibilityState === 'hidden') this.sleep();
      else this.wake();
    };
    document.addEventListener('visibilitychange', follow);
    window.addEventListener('pagehide', this.sleep);
    follow();
    return () => {
      document.removeEventListener('visibilitychange', follow);
      window.removeEventListener('pagehide', this.sleep);
      this.sleep();
    };
  }

  on(event: string, listener: Listener): () => void {
    const listeners = this.listeners.get(event) ?? new Set<Listener>();
    this.listeners.set(event, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  onState = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    return () => this.stateListeners.delete(listener);
  };

  /** Called when events may have been missed: after sleep and after a broken connection. */
  onWake(listener: () => void): () => void {
    this.wakeListeners.add(listener);
    return () => this.wakeListeners.delete(listener);
  }

  private wake(): void {
    if (this.life !== null) return;
    this.life = new AbortController();
    const { signal } = this.life;
    this.openChannel();
    this.setState('connecting');
    for (const listener of this.wakeListeners) listener();
    void this.leadership.run(() => this.lead(signal), signal);
  }

  private sleep = (): void => {
    this.life?.abort();
    this.life = null;
    this.channel?.close();
    this.channel = null;
    this.setState('off');
  };

  private openChannel(): void {
    if (typeof BroadcastChannel === 'undefined') return;
    this.channel = new BroadcastChannel(CHANNEL);
    this.channel.onmessage = ({ data }: MessageEvent<Message>) => {
      if (data.kind === 'hello') {
        if (this.isLeader) this.share({ kind: 'state', state: this.currentState });
      } else if (!this.isLeader && data.kind === 'event') this.deliver(data.event);
      else if (!this.isLeader && data.kind === 'state') this.setState(data.state);
    };
    this.share({ kind: 'hello' });
  }

  private async lead(signal: AbortSignal): Promise<void> {
    this.isLeader = true;
    try {
      await this.keepConnected(signal);
    } finally {
      this.isLeader = false;
    }
  }

  private async keepConnected(signal: AbortSignal): Promise<void> {
    const firstRetry = this.options.firstRetryMilliseconds ?? 1000;
    let retry = firstRetry;
    let wasOpen = false;
    while (!signal.aborted) {
      this.tellState('connecting');
      const end = await readStream({
        url: this.options.url,
        lastEventId: this.lastEventId,
        signal,
        onOpen: () => {
          retry = firstRetry;
          this.tellState('open');
          if (wasOpen) for (const listener of this.wakeListeners) listener();
          wasOpen = true;
        },
        onEvent: (event) => {
          this.share({ kind: 'event', event });
          this.deliver(event);
        },
      });
      if (end === 'aborted') return;
      if (end === 'unauthenticated') {
        this.tellState('unauthenticated');
        return;
      }
      this.tellState('connecting');
      // Jitter keeps a hundred browsers from coming back in the same second.
      await pause(retry * (0.7 + Math.random() * 0.6), signal);
      retry = Math.min(retry * 2, LONGEST_RETRY_MILLISECONDS);
    }
  }

  private deliver(event: ServerEvent): void {
    if (event.id !== null) this.lastEventId = event.id;
    const listeners = this.listeners.get(event.event);
    if (listeners === undefined || listeners.size === 0) return;
    let data: unknown;
    try {
      data = JSON.parse(event.data);
    } catch {
      return;
    }
    for (const listener of listeners) listener(data);
  }

  private share(message: Message): void {
    this.channel?.postMessage(message);
  }

  private tellState(state: StreamState): void {
    this.setState(state);
    this.share({ kind: 'state', state });
  }

  private setState(state: StreamState): void {
    if (state === this.currentState) return;
    this.currentState = state;
    for (const listener of this.stateListeners) listener();
  }
}
