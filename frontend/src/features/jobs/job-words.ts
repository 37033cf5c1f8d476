import type { Job, JobState } from '@/features/jobs/api/jobs';
import type { Tone } from '@/components/status-badge';
import { formatCount, formatDuration } from '@/lib/format';

export const JOB_TONES: Record<JobState, Tone> = {
  queued: 'idle',
  running: 'active',
  succeeded: 'ok',
  failed: 'bad',
  cancelled: 'warn',
};

const PHASES: Record<string, string> = {
  plan: 'Listing files',
  write: 'Writing',
  publish: 'Publishing',
};

export function progressShare({ state, progress }: Job): number {
  if (state === 'succeeded') return 1;
  if (!progress.total) return 0;
  return Math.min(1, (progress.done ?? 0) / progress.total);
}

/** `Writing 1,200 of 3,000 samples`, or what came of it. */
export function progressText(job: Job): string {
  const { state, progress, result, error } = job;
  if (state === 'failed') return error?.detail ?? 'Failed without a reason.';
  if (state === 'succeeded' && result != null) {
    return `v${String(result.version)}, ${formatCount(result.sample_count)} samples`;
  }
  if (state === 'queued') return 'Waits for a worker';
  const phase = PHASES[progress.phase ?? ''] ?? progress.phase ?? '';
  const total = progress.total == null ? '' : ` of ${formatCount(progress.total)}`;
  return `${phase} ${formatCount(progress.done ?? 0)}${total} ${progress.unit ?? 'samples'}`.trim();
}

export function durationText(job: Job, now: number): string {
  if (job.started_at == null) return '–';
  const end = job.ended_at == null ? now : Date.parse(job.ended_at);
  return formatDuration((end - Date.parse(job.started_at)) / 1000);
}
