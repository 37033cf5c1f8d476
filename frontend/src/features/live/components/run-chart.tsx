import { Button, Group, Skeleton, Table, Text } from '@mantine/core';
import { lazy, Suspense, useState } from 'react';
import type { SeriesPoint } from '@/features/live/series';
import { formatClock, formatMegabytesPerSecond, formatRate, formatShare } from '@/lib/format';
import classes from './run-chart.module.css';

const RateChart = lazy(() =>
  import('@/features/live/components/rate-chart').then((module) => ({ default: module.RateChart })),
);

const TABLE_ROWS = 30;

interface RunChartProps {
  name: string;
  series: readonly SeriesPoint[] | undefined;
}

export function RunChart({ name, series }: RunChartProps) {
  const [isTable, setIsTable] = useState(false);
  if (series === undefined) return <Skeleton height={180} />;
  if (series.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        No points in this window.
      </Text>
    );
  }
  return (
    <div>
      <Group justify="space-between" mb={4}>
        <Text size="xs" c="dimmed">
          Samples/s, all ranks together
        </Text>
        <Button
          size="compact-xs"
          variant="subtle"
          aria-pressed={isTable}
          aria-label={`${isTable ? 'Chart' : 'Numbers'} of ${name}`}
          onClick={() => {
            setIsTable(!isTable);
          }}
        >
          {isTable ? 'Chart' : 'Numbers'}
        </Button>
      </Group>
      {isTable ? (
        <PointTable name={name} series={series} />
      ) : (
        <Suspense fallback={<Skeleton height={180} />}>
          <RateChart series={series} label={chartLabel(name, series)} />
        </Suspense>
      )}
    </div>
  );
}

function PointTable({ name, series }: { name: string; series: readonly SeriesPoint[] }) {
  return (
    <div className={classes.table} tabIndex={0} role="region" aria-label={`Points of ${name}`}>
      <Table verticalSpacing={3} stickyHeader className="numbers" aria-label={`Points of ${name}`}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Time</Table.Th>
            <Table.Th ta="right">Samples/s</Table.Th>
            <Table.Th ta="right">MB/s</Table.Th>
            <Table.Th ta="right">Wait</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {series
            .slice(-TABLE_ROWS)
            .toReversed()
            .map((point) => (
              <Table.Tr key={point.at}>
                <Table.Td>{formatClock(new Date(point.at * 1000).toISOString())}</Table.Td>
                <Table.Td ta="right">{formatRate(point.samplesPerSecond)}</Table.Td>
                <Table.Td ta="right">{formatMegabytesPerSecond(point.bytesPerSecond)}</Table.Td>
                <Table.Td ta="right">{formatShare(point.waitShare)}</Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function chartLabel(name: string, series: readonly SeriesPoint[]): string {
  const rates = series.map(({ samplesPerSecond }) => samplesPerSecond);
  const last = rates.at(-1) ?? 0;
  return `Samples per second of ${name}: now ${formatRate(last)}, between ${formatRate(Math.min(...rates))} and ${formatRate(Math.max(...rates))}`;
}
