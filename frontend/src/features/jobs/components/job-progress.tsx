import { Progress, Text } from '@mantine/core';
import { type Job, isActive } from '@/features/jobs/api/jobs';
import { progressShare, progressText } from '@/features/jobs/job-words';

export function JobProgress({ job }: { job: Job }) {
  const share = progressShare(job);
  const name = `Progress of ${job.kind} ${job.dataset ?? ''}`.trim();
  return (
    <>
      {isActive(job.state) && (
        <Progress.Root size="sm" mb={4}>
          <Progress.Section value={share * 100} color="var(--ps-accent)" aria-label={name} />
        </Progress.Root>
      )}
      <Text size="xs" c={job.state === 'failed' ? undefined : 'dimmed'} lineClamp={2}>
        {progressText(job)}
      </Text>
    </>
  );
}
