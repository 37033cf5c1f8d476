import { Progress } from '@mantine/core';
import type { ReactNode } from 'react';
import type { Run } from '@/features/live/api/runs';
import { secondsLeft, type SeriesPoint } from '@/features/live/series';
import {
  formatCount,
  formatDuration,
  formatMegabytesPerSecond,
  formatRate,
  formatShare,
} from '@/lib/format';
import classes from './run-figures.module.css';

interface RunFiguresProps {
  run: Run;
  series: readonly SeriesPoint[];
}

export function RunFigures({ run, series }: RunFiguresProps) {
  const { totals, loaders } = run;
  const worst = loaders.toSorted((a, b) => b.wait_share - a.wait_share)[0];
  const left = run.state === 'running' ? secondsLeft(series) : null;
  return (
    <dl className={classes.root}>
      <Figure
        name="samples/s"
        testId="samples-per-second"
        value={formatRate(totals.samples_per_second)}
      />
      <Figure
        name="MB/s"
        testId="megabytes-per-second"
        value={formatMegabytesPerSecond(totals.bytes_per_second)}
      />
      <Figure
        name="wait"
        testId="wait-share"
        value={formatShare(totals.wait_share)}
        note={
          worst !== undefined && loaders.length > 1
            ? `worst rank ${String(worst.rank)}: ${formatShare(worst.wait_share)}`
            : undefined
        }
      />
      <Figure
        name={`epoch ${String(totals.epoch)}`}
        testId="epoch-share"
        value={formatShare(totals.epoch_share)}
        note={left === null ? undefined : `${formatDuration(left)} left`}
      >
        <Progress.Root component="dd" size={4} className={classes.progress}>
          <Progress.Section
            value={totals.epoch_share * 100}
            color="var(--ps-accent)"
            aria-label={`Epoch of ${run.name}`}
          />
        </Progress.Root>
      </Figure>
      <Figure name="samples so far" testId="samples" value={formatCount(totals.samples)} />
    </dl>
  );
}

interface FigureProps {
  name: string;
  value: string;
  testId: string;
  note?: string | undefined;
  children?: ReactNode;
}

function Figure({ name, value, testId, note, children }: FigureProps) {
  return (
    <div className={classes.figure}>
      <dt className={classes.name}>{name}</dt>
      <dd className={classes.value} data-testid={testId}>
        {value}
      </dd>
      {children}
      {note !== undefined && <dd className={classes.note}>{note}</dd>}
    </div>
  );
}
