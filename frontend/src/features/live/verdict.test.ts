import { expect, test } from 'vitest';
import { verdictOf } from '@/features/live/verdict';
import { makeLoader, makeRun } from '@/testing/fixtures';

const now = Date.parse('2026-11-16T12:01:00Z');
const totals = makeRun().totals;

test.each([
  ['HEALTHY 1 %', makeRun()],
  ['WAITS FOR DATA 12 %', makeRun({ totals: { ...totals, wait_share: 0.12 } })],
  ['STARTING', makeRun({ totals: { ...totals, samples: 0, wait_share: 1 } })],
  ['SILENT 45 s', makeRun({ state: 'silent', last_seen_at: '2026-11-16T12:00:15Z' })],
  ['ENDED', makeRun({ state: 'ended', ended_at: '2026-11-16T12:00:30Z' })],
  ['FAILED', makeRun({ state: 'failed' })],
] as const)('%s', (headline, run) => {
  expect(verdictOf(run, now).headline).toBe(headline);
});

test('the reason for waiting names what is the limit', () => {
  const waiting = (loader: Parameters<typeof makeLoader>[0]) =>
    verdictOf(
      makeRun({ totals: { ...totals, wait_share: 0.3 }, loaders: [makeLoader(loader)] }),
      now,
    ).reason;
  expect(waiting({ decode_share: 0.8 })).toContain('Decoding is the limit');
  expect(waiting({ retries: 4 })).toContain('4 reads had to be repeated');
  expect(waiting({})).toBe('Data arrives slower than the trainer takes it.');
});
