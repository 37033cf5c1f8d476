import { Button, Group, SegmentedControl, Skeleton, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { EmptyState } from '@/components/empty-state';
import { LiveIcon } from '@/components/icons';
import { PageHeader } from '@/components/page-header';
import { ProblemAlert } from '@/components/problem-alert';
import { AppLink } from '@/components/app-link';
import { type Run, runQuery, runsQuery } from '@/features/live/api/runs';
import { EndedRuns } from '@/features/live/components/ended-runs';
import { RunCard } from '@/features/live/components/run-card';
import { formatAgo } from '@/lib/format';
import { useNow } from '@/lib/use-now';

const WINDOWS = [1, 5, 15, 60].map((minutes) => ({
  value: String(minutes),
  label: `${String(minutes)} min`,
}));
const OPEN_CARDS = 3;

interface LivePageProps {
  runId?: string | undefined;
  /** Shown while no loader runs. */
  howToStart: ReactNode;
}

export function LivePage({ runId, howToStart }: LivePageProps) {
  const [minutes, setMinutes] = useState('5');
  const [frozen, setFrozen] = useState<Run[] | null>(null);
  const list = useQuery(runsQuery);
  const one = useQuery({ ...runQuery(runId ?? ''), enabled: runId !== undefined });
  const source = runId === undefined ? list : one;
  const current = runId === undefined ? list.data?.items : one.data && [one.data];
  const runs = frozen ?? current;
  return (
    <>
      <PageHeader
        title="Live"
        above={
          runId !== undefined && (
            <AppLink to="/live" size="sm">
              All runs
            </AppLink>
          )
        }
        detail={<span aria-live="polite">{runs === undefined ? ' ' : countLine(runs)}</span>}
        actions={
          <>
            <Updated at={source.dataUpdatedAt} />
            <SegmentedControl
              aria-label="Time window"
              size="xs"
              data={WINDOWS}
              value={minutes}
              onChange={setMinutes}
            />
            <Button
              size="xs"
              variant="default"
              aria-pressed={frozen !== null}
              onClick={() => {
                setFrozen(frozen === null ? (current ?? null) : null);
              }}
            >
              {frozen === null ? 'Pause' : 'Resume'}
            </Button>
          </>
        }
      />
      {source.isError && runs === undefined && (
        <ProblemAlert error={source.error} onRetry={() => void source.refetch()} />
      )}
      {runs === undefined && !source.isError && <Skeleton height={320} radius="md" />}
      {runs !== undefined && (
        <RunCards
          runs={runs}
          minutes={Number(minutes)}
          isPaused={frozen !== null}
          isSingle={runId !== undefined}
          howToStart={howToStart}
        />
      )}
    </>
  );
}

interface RunCardsProps {
  runs: readonly Run[];
  minutes: number;
  isPaused: boolean;
  isSingle: boolean;
  howToStart: ReactNode;
}

function RunCards({ runs, minutes, isPaused, isSingle, howToStart }: RunCardsProps) {
  const going = runs.filter(({ state }) => isSingle || state === 'running' || state === 'silent');
  const ended = runs.filter((run) => !going.includes(run));
  return (
    <Stack gap="md">
      {going.length === 0 && (
        <EmptyState title="No loader is running" icon={<LiveIcon size={28} />}>
          {howToStart}
        </EmptyState>
      )}
      {going.map((run, index) => (
        <RunCard
          key={run.id}
          run={run}
          minutes={minutes}
          isPaused={isPaused}
          isOpenAtFirst={isSingle || (index < OPEN_CARDS && run.state === 'running')}
        />
      ))}
      {ended.length > 0 && <EndedRuns runs={ended} />}
    </Stack>
  );
}

function Updated({ at }: { at: number }) {
  const now = useNow(1);
  if (at === 0) return null;
  return (
    <Group gap={0}>
      <Text size="xs" c="dimmed" className="numbers">
        updated {formatAgo(new Date(at).toISOString(), now)}
      </Text>
    </Group>
  );
}

function countLine(runs: readonly Run[]): string {
  const count = (state: Run['state']) => runs.filter((run) => run.state === state).length;
  const silent = count('silent');
  return `${String(count('running'))} running${silent > 0 ? ` · ${String(silent)} silent` : ''}`;
}
