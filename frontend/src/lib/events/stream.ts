import { SseParser, type ServerEvent } from '@/lib/events/sse-parser';

export interface StreamOptions {
  url: string;
  lastEventId: string | null;
  onOpen: () => void;
  onEvent: (event: ServerEvent) => void;
  signal: AbortSignal;
  /** The server sends a comment every 15 s: two missed ones mean that the line is dead. */
  silenceSeconds?: number;
}

export type StreamEnd = 'aborted' | 'unauthenticated' | 'closed';

/** One connection until it ends, by fetch: EventSource hides the status and cannot be resumed elsewhere. */
export async function readStream(options: StreamOptions): Promise<StreamEnd> {
  const silence = new AbortController();
  const signal = AbortSignal.any([options.signal, silence.signal]);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(
      () => {
        silence.abort();
      },
      (options.silenceSeconds ?? 35) * 1000,
    );
  };
  try {
    heard();
    const response = await fetch(options.url, {
      headers: {
        Accept: 'text/event-stream',
        ...(options.lastEventId === null ? {} : { 'Last-Event-ID': options.lastEventId }),
      },
      credentials: 'same-origin',
      cache: 'no-store',
      signal,
    });
    if (response.status === 401) return 'unauthenticated';
    if (!response.ok || response.body === null) return 'closed';
    options.onOpen();
    const reader = response.body.getReader();
    const cancel = () => void reader.cancel().catch(() => undefined);
    signal.addEventListener('abort', cancel);
    await pump(reader, options.onEvent, heard);
    return options.signal.aborted ? 'aborted' : 'closed';
  } catch {
    return options.signal.aborted ? 'aborted' : 'closed';
  } finally {
    clearTimeout(timer);
  }
}

async function pump(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  onEvent: (event: ServerEvent) => void,
  heard: () => void,
): Promise<void> {
  const decoder = new TextDecoder();
  const parser = new SseParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    for (const event of parser.push(decoder.decode(value, { stream: true }))) onEvent(event);
  }
}
