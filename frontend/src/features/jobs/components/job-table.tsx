import { SegmentedControl, Skeleton, Table, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { AppLink } from '@/components/app-link';
import { EmptyState } from '@/components/empty-state';
import { PageHeader } from '@/components/page-header';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { StatusBadge } from '@/components/status-badge';
import { TimeAgo } from '@/components/time-ago';
import { type Job, jobsQuery } from '@/features/jobs/api/jobs';
import { CancelButton } from '@/features/jobs/components/cancel-button';
import { JobProgress } from '@/features/jobs/components/job-progress';
import { durationText, JOB_TONES } from '@/features/jobs/job-words';
import { formatCount, formatQuantity } from '@/lib/format';
import { useNow } from '@/lib/use-now';
import classes from './job-table.module.css';

const FILTERS = [
  { value: '', label: 'All' },
  { value: 'running', label: 'Running' },
  { value: 'queued', label: 'Queued' },
  { value: 'succeeded', label: 'Succeeded' },
  { value: 'failed', label: 'Failed' },
];

export function JobTable() {
  const [state, setState] = useState('');
  const jobs = useQuery(jobsQuery(state));
  const count = jobs.data?.total ?? jobs.data?.items.length;
  return (
    <>
      <PageHeader
        title="Jobs"
        detail={
          <span aria-live="polite">{count === undefined ? ' ' : formatQuantity(count, 'job')}</span>
        }
        actions={
          <SegmentedControl
            aria-label="State"
            size="xs"
            data={FILTERS}
            value={state}
            onChange={setState}
          />
        }
      />
      {jobs.isError && jobs.data === undefined && (
        <ProblemAlert error={jobs.error} onRetry={() => void jobs.refetch()} />
      )}
      {jobs.isPending && <Skeleton height={220} radius="md" />}
      {jobs.data?.items.length === 0 && (
        <EmptyState title={state === '' ? 'No jobs yet' : 'No job in this state'}>
          Everything that takes longer than a second runs as a job: it survives a reload, a restart
          of the server and a dead worker.
        </EmptyState>
      )}
      {jobs.data !== undefined && jobs.data.items.length > 0 && (
        <JobRows jobs={jobs.data.items} isStale={jobs.isPlaceholderData} />
      )}
    </>
  );
}

function JobRows({ jobs, isStale }: { jobs: Job[]; isStale: boolean }) {
  const now = useNow(1);
  return (
    <Panel isFlush>
      <Table.ScrollContainer minWidth={860} className={isStale ? classes.stale : undefined}>
        <Table aria-label="Jobs" highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Job</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th className={classes.progress}>Progress</Table.Th>
              <Table.Th ta="right">Set aside</Table.Th>
              <Table.Th ta="right">Took</Table.Th>
              <Table.Th>Started by</Table.Th>
              <Table.Th>
                <span className="visually-hidden">Actions</span>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody className="numbers">
            {jobs.map((job) => (
              <Table.Tr key={job.id}>
                <Table.Td>
                  <AppLink to="/jobs/$jobId" params={{ jobId: job.id }} fw={550}>
                    {job.kind}
                    {job.dataset != null && ` ${job.dataset}`}
                  </AppLink>
                  <Text size="xs" c="dimmed">
                    <TimeAgo time={job.created_at} />
                    {job.attempts > 1 && ` · attempt ${String(job.attempts)}`}
                  </Text>
                </Table.Td>
                <Table.Td>
                  <StatusBadge tone={JOB_TONES[job.state]}>{job.state}</StatusBadge>
                </Table.Td>
                <Table.Td>
                  <JobProgress job={job} />
                </Table.Td>
                <Table.Td ta="right">{formatCount(setAsideCount(job))}</Table.Td>
                <Table.Td ta="right">{durationText(job, now)}</Table.Td>
                <Table.Td dir="auto">{job.created_by}</Table.Td>
                <Table.Td ta="right">
                  <CancelButton job={job} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Panel>
  );
}

function setAsideCount({ result, quarantined }: Job): number {
  return result?.quarantined_count ?? quarantined.length;
}
