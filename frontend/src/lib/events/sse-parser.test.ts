import { expect, test } from 'vitest';
import { SseParser } from '@/lib/events/sse-parser';

const STREAM =
  ': keep-alive\n\nid: 7\nevent: job\ndata: {"a":\ndata: 1}\n\nevent: run\r\ndata: x\r\n\r\ndata:bare\n\nevent: empty\n\n';

const EXPECTED = [
  { id: '7', event: 'job', data: '{"a":\n1}' },
  { id: '7', event: 'run', data: 'x' },
  { id: '7', event: 'message', data: 'bare' },
];

test.each([1, 2, 3, 7, 1000])('pieces of %d characters give the same events', (size) => {
  const parser = new SseParser();
  const events = [];
  for (let at = 0; at < STREAM.length; at += size) {
    events.push(...parser.push(STREAM.slice(at, at + size)));
  }
  expect(events).toEqual(EXPECTED);
});

test('an unfinished event is kept back', () => {
  const parser = new SseParser();
  expect(parser.push('data: half\n')).toEqual([]);
  expect(parser.push('\n')).toEqual([{ id: null, event: 'message', data: 'half' }]);
});
