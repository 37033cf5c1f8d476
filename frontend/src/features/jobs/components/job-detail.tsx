import { Group, Skeleton, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { AppLink, ButtonLink } from '@/components/app-link';
import { CopyButton } from '@/components/copy-button';
import { PageHeader } from '@/components/page-header';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { StatusBadge } from '@/components/status-badge';
import { type Job, isActive, jobQuery } from '@/features/jobs/api/jobs';
import { CancelButton } from '@/features/jobs/components/cancel-button';
import { JobProgress } from '@/features/jobs/components/job-progress';
import { durationText, JOB_TONES } from '@/features/jobs/job-words';
import { formatCount, formatQuantity, formatTime } from '@/lib/format';
import { useNow } from '@/lib/use-now';
import classes from './job-detail.module.css';

export function JobDetail({ jobId }: { jobId: string }) {
  const job = useQuery(jobQuery(jobId));
  const title =
    job.data === undefined ? 'Job' : `${job.data.kind} ${job.data.dataset ?? ''}`.trim();
  return (
    <>
      <PageHeader
        title={title}
        above={
          <AppLink to="/jobs" size="sm">
            All jobs
          </AppLink>
        }
        actions={job.data && <CancelButton job={job.data} />}
      />
      {job.isError && <ProblemAlert error={job.error} onRetry={() => void job.refetch()} />}
      {job.isPending && <Skeleton height={200} radius="md" />}
      {job.data !== undefined && <JobFacts job={job.data} />}
    </>
  );
}

function JobFacts({ job }: { job: Job }) {
  const now = useNow(1);
  return (
    <Stack gap="md">
      <Panel>
        <Stack gap="sm">
          <Group gap="md">
            <StatusBadge tone={JOB_TONES[job.state]}>{job.state}</StatusBadge>
            <Text size="sm" c="dimmed" className="numbers">
              {durationText(job, now)}
              {job.attempts > 1 && ` · attempt ${String(job.attempts)}`}
            </Text>
          </Group>
          {job.state !== 'failed' && <JobProgress job={job} />}
          {job.error != null && <JobFailure error={job.error} />}
          {job.state === 'succeeded' && job.dataset != null && (
            <Group>
              <ButtonLink
                to="/datasets/$slug/{-$tab}"
                params={{ slug: job.dataset, tab: undefined }}
                search={job.result?.version == null ? {} : { version: job.result.version }}
              >
                Open {job.dataset}
                {job.result?.version != null && ` v${String(job.result.version)}`}
              </ButtonLink>
            </Group>
          )}
          <dl className={classes.facts}>
            <dt>Created</dt>
            <dd>
              {formatTime(job.created_at)} by {job.created_by}
            </dd>
            <dt>Ended</dt>
            <dd>
              {job.ended_at == null
                ? isActive(job.state)
                  ? 'not yet'
                  : '–'
                : formatTime(job.ended_at)}
            </dd>
            <dt>Job id</dt>
            <dd className="mono">
              {job.id} <CopyButton value={job.id} label="Copy job id" />
            </dd>
          </dl>
        </Stack>
      </Panel>
      {job.quarantined.length > 0 && <Quarantine job={job} />}
    </Stack>
  );
}

function JobFailure({ error }: { error: NonNullable<Job['error']> }) {
  return (
    <div role="alert" className={classes.failure}>
      <Text fw={600}>The job failed</Text>
      <Text size="sm">{error.detail}</Text>
      <Text size="xs" className="mono">
        {error.code}
      </Text>
    </div>
  );
}

function Quarantine({ job }: { job: Job }) {
  const total = job.result?.quarantined_count ?? job.quarantined.length;
  return (
    <Panel labelledBy="set-aside">
      <Title order={2} id="set-aside" mb="xs">
        {formatQuantity(total, 'file')} set aside
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        These files could not be read and are in no version. Mend them and add the folder again:
        only they are new.
        {total > job.quarantined.length && ` The first ${formatCount(job.quarantined.length)}:`}
      </Text>
      <Table.ScrollContainer minWidth={480}>
        <Table aria-label="Files set aside" verticalSpacing={5}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>File</Table.Th>
              <Table.Th>Reason</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {job.quarantined.map(({ key, reason }) => (
              <Table.Tr key={key}>
                <Table.Td className="mono" dir="auto">
                  {key}
                </Table.Td>
                <Table.Td>{reason}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Panel>
  );
}
