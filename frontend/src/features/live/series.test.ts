import { expect, test } from 'vitest';
import {
  appendPoint,
  secondsLeft,
  seriesFromPoints,
  timeSpan,
  type SeriesPoint,
} from '@/features/live/series';
import { makePoint, makeRun } from '@/testing/fixtures';

const at = (seconds: number) => new Date(1_800_000_000_000 + seconds * 1000).toISOString();

test('rates of ranks that report in the same two seconds are added, waits averaged', () => {
  const series = seriesFromPoints([
    makePoint({ at: at(0.1), loader_id: 'a', samples: 2000, wait_seconds: 0.2 }),
    makePoint({ at: at(1.2), loader_id: 'b', samples: 1000, wait_seconds: 0.6 }),
    makePoint({ at: at(2.1), loader_id: 'a', samples: 4000, wait_seconds: 0 }),
  ]);
  expect(series.map(({ samplesPerSecond }) => samplesPerSecond)).toEqual([1500, 2000]);
  expect(series[0]?.waitShare).toBeCloseTo(0.2);
  expect((series[1]?.at ?? 0) - (series[0]?.at ?? 0)).toBe(2);
});

test('an event appends, replaces the same moment and drops what is older than the window', () => {
  const run = makeRun({ last_seen_at: at(100) });
  const old = (seconds: number): SeriesPoint => ({
    at: 1_800_000_000 + seconds,
    samplesPerSecond: 1,
    bytesPerSecond: 1,
    waitShare: 0,
    epochs: 0,
  });
  const series = appendPoint([old(0), old(50), old(100)], run, 60);
  expect(series.map(({ at: time }) => time - 1_800_000_000)).toEqual([50, 100]);
  expect(series.at(-1)?.samplesPerSecond).toBe(1200);
});

test('a single point gets half a minute of time axis, not a day of midnights', () => {
  const noon = 1_800_014_400;
  expect(timeSpan(noon, noon)).toEqual([noon - 30, noon]);
  expect(timeSpan(noon - 2, noon)).toEqual([noon - 30, noon]);
  expect(timeSpan(noon - 300, noon)).toEqual([noon - 300, noon]);
  expect(timeSpan(null, null)).toEqual([null, null]);
});

test('time left comes from how fast the epoch moved', () => {
  const point = (time: number, epochs: number): SeriesPoint => ({
    at: time,
    samplesPerSecond: 0,
    bytesPerSecond: 0,
    waitShare: 0,
    epochs,
  });
  expect(secondsLeft([point(0, 3.5), point(10, 3.6)])).toBeCloseTo(40);
  expect(secondsLeft([point(0, 3.5), point(10, 3.5)])).toBeNull();
  expect(secondsLeft([point(0, 3.5)])).toBeNull();
  expect(secondsLeft([])).toBeNull();
});
