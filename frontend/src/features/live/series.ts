import type { Run, RunPoint } from '@/features/live/api/runs';

/** One moment of a run, all ranks together. */
export interface SeriesPoint {
  /** Seconds since 1970, as the chart wants them. */
  at: number;
  samplesPerSecond: number;
  bytesPerSecond: number;
  waitShare: number;
  /** Epochs done, with the part of the one under way: 3.62. */
  epochs: number;
}

const BUCKET_SECONDS = 2;
const SHORTEST_SPAN_SECONDS = 30;

/** Ranks report at different moments: their rates are added up within two seconds. */
export function seriesFromPoints(points: readonly RunPoint[]): SeriesPoint[] {
  const buckets = new Map<number, Map<string, RunPoint[]>>();
  for (const point of points) {
    const bucket = Math.floor(Date.parse(point.at) / 1000 / BUCKET_SECONDS) * BUCKET_SECONDS;
    const loaders = buckets.get(bucket) ?? new Map<string, RunPoint[]>();
    loaders.set(point.loader_id, [...(loaders.get(point.loader_id) ?? []), point]);
    buckets.set(bucket, loaders);
  }
  return [...buckets.entries()]
    .toSorted(([a], [b]) => a - b)
    .map(([at, loaders]) => combine(at, [...loaders.values()]));
}

function combine(at: number, loaders: RunPoint[][]): SeriesPoint {
  const point = { at, samplesPerSecond: 0, bytesPerSecond: 0, waitShare: 0, epochs: 0 };
  for (const reports of loaders) {
    const seconds = sum(reports, ({ seconds: each }) => each) || 1;
    point.samplesPerSecond += sum(reports, ({ samples }) => samples) / seconds;
    point.bytesPerSecond += sum(reports, ({ bytes }) => bytes) / seconds;
    point.waitShare += sum(reports, ({ wait_seconds: wait }) => wait) / seconds / loaders.length;
    const last = reports.at(-1);
    if (last !== undefined) {
      const share = last.steps > 0 ? last.step / last.steps : 0;
      point.epochs += (last.epoch + share) / loaders.length;
    }
  }
  return { ...point, waitShare: Math.min(1, point.waitShare) };
}

/** Adds what a run event says; an event about a moment already known replaces it. */
export function appendPoint(
  series: readonly SeriesPoint[],
  run: Run,
  windowSeconds: number,
): SeriesPoint[] {
  const at = Math.floor(Date.parse(run.last_seen_at) / 1000 / BUCKET_SECONDS) * BUCKET_SECONDS;
  const { totals } = run;
  const point: SeriesPoint = {
    at,
    samplesPerSecond: totals.samples_per_second,
    bytesPerSecond: totals.bytes_per_second,
    waitShare: totals.wait_share,
    epochs: totals.epoch + totals.epoch_share,
  };
  const kept = series.filter((old) => old.at < at && old.at >= at - windowSeconds);
  return [...kept, point];
}

/** Seconds until the epoch ends, from how fast it moved in the series; null when that says nothing. */
export function secondsLeft(series: readonly SeriesPoint[]): number | null {
  const last = series.at(-1);
  const first = series.find(({ at }) => last !== undefined && at >= last.at - 60);
  if (first === undefined || last === undefined || last.at - first.at < 6) return null;
  const speed = (last.epochs - first.epochs) / (last.at - first.at);
  return speed > 0 ? (1 - (last.epochs % 1)) / speed : null;
}

/**
 * What the chart's time axis spans. A run that has just begun gets half a minute before its last point: the plot library
 * gives a single point a whole day, whose ticks are all midnights.
 */
export function timeSpan(
  first: number | null,
  last: number | null,
): [number | null, number | null] {
  if (first === null || last === null) return [first, last];
  return [Math.min(first, last - SHORTEST_SPAN_SECONDS), last];
}

function sum(points: readonly RunPoint[], value: (point: RunPoint) => number): number {
  return points.reduce((total, point) => total + value(point), 0);
}
