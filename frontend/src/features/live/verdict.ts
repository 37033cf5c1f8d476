import type { Tone } from '@/components/status-badge';
import type { Run } from '@/features/live/api/runs';
import { formatClock, formatDuration, formatShare } from '@/lib/format';

export interface Verdict {
  tone: Tone;
  headline: string;
  reason: string;
}

const WAITS_FROM_SHARE = 0.05;
const DECODE_IS_LIMIT_SHARE = 0.5;

/** Who waits for whom, in one line: the first thing to read about a run. */
export function verdictOf(run: Run, now: number): Verdict {
  const { state, totals } = run;
  if (state === 'failed') {
    return {
      tone: 'bad',
      headline: 'FAILED',
      reason: `Last seen at ${formatClock(run.last_seen_at)}.`,
    };
  }
  if (state === 'ended') {
    const end = run.ended_at ?? run.last_seen_at;
    const seconds = (Date.parse(end) - Date.parse(run.started_at)) / 1000;
    return { tone: 'idle', headline: 'ENDED', reason: `Ran for ${formatDuration(seconds)}.` };
  }
  if (state === 'silent') {
    const seconds = (now - Date.parse(run.last_seen_at)) / 1000;
    const host = run.loaders[0]?.host;
    return {
      tone: 'warn',
      headline: `SILENT ${formatDuration(seconds)}`,
      reason: `Last seen at ${formatClock(run.last_seen_at)}${host === undefined ? '' : ` on ${host}`}.`,
    };
  }
  if (totals.samples === 0) {
    return { tone: 'active', headline: 'STARTING', reason: 'No batch has been taken yet.' };
  }
  const share = formatShare(totals.wait_share);
  if (totals.wait_share >= WAITS_FROM_SHARE) {
    return { tone: 'bad', headline: `WAITS FOR DATA ${share}`, reason: waitReason(run) };
  }
  return {
    tone: 'ok',
    headline: `HEALTHY ${share}`,
    reason: 'The trainer is the limit; faster data would gain nothing.',
  };
}

function waitReason({ loaders }: Run): string {
  const decode = Math.max(0, ...loaders.map(({ decode_share: share }) => share));
  if (decode >= DECODE_IS_LIMIT_SHARE) {
    return `Decoding is the limit: it takes ${formatShare(decode)} of the time.`;
  }
  const retries = loaders.reduce((total, loader) => total + loader.retries, 0);
  if (retries > 0) return `Data arrives too late; ${String(retries)} reads had to be repeated.`;
  return 'Data arrives slower than the trainer takes it.';
}
