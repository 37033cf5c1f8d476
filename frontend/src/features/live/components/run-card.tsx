import { Button, Collapse, Group, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Panel } from '@/components/panel';
import { type Run, seriesQuery } from '@/features/live/api/runs';
import { RankTable } from '@/features/live/components/rank-table';
import { RunChart } from '@/features/live/components/run-chart';
import { RunFigures } from '@/features/live/components/run-figures';
import { verdictOf } from '@/features/live/verdict';
import { formatClock } from '@/lib/format';
import { useNow } from '@/lib/use-now';
import classes from './run-card.module.css';

interface RunCardProps {
  run: Run;
  minutes: number;
  isPaused: boolean;
  isOpenAtFirst: boolean;
}

export function RunCard({ run, minutes, isPaused, isOpenAtFirst }: RunCardProps) {
  const [isOpen, setIsOpen] = useState(isOpenAtFirst);
  const now = useNow(1);
  const verdict = verdictOf(run, now);
  const series = useQuery({ ...seriesQuery(run.id, minutes), enabled: isOpen && !isPaused });
  const titleId = `run-${run.id}`;
  return (
    <Panel labelledBy={titleId}>
      <div className={classes.root}>
        <Group justify="space-between" gap="sm" wrap="nowrap" align="flex-start">
          <div className={classes.names}>
            <Title order={2} id={titleId} dir="auto">
              {run.name}
            </Title>
            <Text size="xs" c="dimmed" className="numbers">
              {run.dataset}@{run.version} {run.split}/{run.subset} ·{' '}
              {run.world_size === 1 ? '1 rank' : `${String(run.world_size)} ranks`} · {run.user} ·
              since {formatClock(run.started_at)}
            </Text>
          </div>
          <Button
            size="compact-xs"
            variant="default"
            aria-expanded={isOpen}
            aria-label={`${isOpen ? 'Close' : 'Open'} ${run.name}`}
            onClick={() => {
              setIsOpen(!isOpen);
            }}
          >
            {isOpen ? 'Close' : 'Open'}
          </Button>
        </Group>
        <p className={classes.verdict} data-tone={verdict.tone} data-testid="verdict">
          <strong>{verdict.headline}</strong> <span>{verdict.reason}</span>
        </p>
        <RunFigures run={run} series={series.data ?? []} />
        <Collapse expanded={isOpen}>
          {isOpen && (
            <div className={classes.more}>
              <RunChart name={run.name} series={series.data} />
              <RankTable loaders={run.loaders} />
            </div>
          )}
        </Collapse>
      </div>
    </Panel>
  );
}
