import { http, HttpResponse } from 'msw';
import { afterEach, expect, test, vi } from 'vitest';
import { EventHub } from '@/lib/events/hub';
import { LeaseLeadership } from '@/lib/events/leadership';
import { eventStream, server } from '@/testing/server';

const URL_OF_EVENTS = 'http://127.0.0.1:8080/api/v1/events';
const stops: (() => void)[] = [];
const isNow = <T>(check: () => T) => vi.waitFor(check, { timeout: 15_000 });

afterEach(() => {
  for (const stop of stops.splice(0)) stop();
  setVisibility('visible');
});

function setVisibility(state: 'visible' | 'hidden') {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}

/** A tab of the browser; each has a leadership of its own over the same storage. */
function openTab() {
  const hub = new EventHub({
    url: URL_OF_EVENTS,
    leadership: new LeaseLeadership(),
    firstRetryMilliseconds: 10,
  });
  const seen: unknown[] = [];
  hub.on('job', (data) => seen.push(data));
  const wakes = vi.fn();
  hub.onWake(wakes);
  const stop = hub.start();
  stops.push(stop);
  return { hub, seen, wakes, stop };
}

function countStreams() {
  const streams: ReturnType<typeof eventStream>[] = [];
  const lastIds: (string | null)[] = [];
  server.use(
    http.get('*/api/v1/events', ({ request }) => {
      lastIds.push(request.headers.get('Last-Event-ID'));
      const stream = eventStream();
      streams.push(stream);
      return stream.response;
    }),
  );
  return { streams, lastIds };
}

test('two tabs share one stream, and both get each event once', async () => {
  const { streams } = countStreams();
  const first = openTab();
  await isNow(() => {
    expect(first.hub.state).toBe('open');
  });
  const second = openTab();
  await isNow(() => {
    expect(second.hub.state).toBe('open');
  });
  streams[0]?.send('job', { done: 1 });
  await isNow(() => {
    expect([first.seen, second.seen]).toEqual([[{ done: 1 }], [{ done: 1 }]]);
  });
  expect(streams).toHaveLength(1);
});

test('when the leading tab goes, another opens the stream where it stopped', async () => {
  const { streams, lastIds } = countStreams();
  const first = openTab();
  await isNow(() => {
    expect(first.hub.state).toBe('open');
  });
  const second = openTab();
  await isNow(() => {
    expect(second.hub.state).toBe('open');
  });
  streams[0]?.send('job', { done: 1 }, '41');
  await isNow(() => {
    expect(second.seen).toHaveLength(1);
  });
  first.stop();
  await isNow(() => {
    expect(streams).toHaveLength(2);
  });
  expect(lastIds).toEqual([null, '41']);
});

test('a hidden tab has no stream and takes one again when it is seen', async () => {
  const { streams } = countStreams();
  const tab = openTab();
  await isNow(() => {
    expect(tab.hub.state).toBe('open');
  });
  setVisibility('hidden');
  expect(tab.hub.state).toBe('off');
  expect(tab.wakes).toHaveBeenCalledTimes(1);
  setVisibility('visible');
  await isNow(() => {
    expect(streams).toHaveLength(2);
  });
  expect(tab.wakes).toHaveBeenCalledTimes(2);
});

test('a broken stream is opened again and missed events are asked for', async () => {
  const { streams, lastIds } = countStreams();
  const tab = openTab();
  await isNow(() => {
    expect(tab.hub.state).toBe('open');
  });
  streams[0]?.send('job', { done: 1 }, '5');
  await isNow(() => {
    expect(tab.seen).toHaveLength(1);
  });
  streams[0]?.close();
  await isNow(() => {
    expect(streams).toHaveLength(2);
    expect(tab.wakes).toHaveBeenCalledTimes(2);
  });
  expect(lastIds).toEqual([null, '5']);
});

test('a refused stream is not tried again', async () => {
  let count = 0;
  server.use(
    http.get('*/api/v1/events', () => {
      count += 1;
      return new HttpResponse(null, { status: 401 });
    }),
  );
  const tab = openTab();
  await isNow(() => {
    expect(tab.hub.state).toBe('unauthenticated');
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(count).toBe(1);
});
