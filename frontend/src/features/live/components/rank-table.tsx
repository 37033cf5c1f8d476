import { Table, Text } from '@mantine/core';
import { StatusBadge, type Tone } from '@/components/status-badge';
import type { Loader } from '@/features/live/api/runs';
import { formatBytes, formatCount, formatRate, formatShare } from '@/lib/format';

const TONES: Record<string, Tone> = {
  running: 'active',
  silent: 'warn',
  ended: 'idle',
  failed: 'bad',
};

/** One row a rank, the one that waits most on top. */
export function RankTable({ loaders }: { loaders: readonly Loader[] }) {
  const ranks = loaders.toSorted((a, b) => b.wait_share - a.wait_share || a.rank - b.rank);
  if (ranks.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        No rank has reported yet.
      </Text>
    );
  }
  return (
    <Table.ScrollContainer minWidth={880}>
      <Table aria-label="Ranks" verticalSpacing={5} horizontalSpacing="sm" className="numbers">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Rank</Table.Th>
            <Table.Th>Host</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th ta="right">Samples/s</Table.Th>
            <Table.Th ta="right">Wait</Table.Th>
            <Table.Th ta="right">ms/batch</Table.Th>
            <Table.Th ta="right">Ready</Table.Th>
            <Table.Th ta="right">Window</Table.Th>
            <Table.Th ta="right">p50 / p99 ms</Table.Th>
            <Table.Th ta="right">Retries</Table.Th>
            <Table.Th ta="right">Step</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {ranks.map((loader) => (
            <Table.Tr key={loader.id}>
              <Table.Th scope="row">{loader.rank}</Table.Th>
              <Table.Td dir="auto">
                {loader.host}{' '}
                <Text span size="xs" c="dimmed">
                  pid {loader.pid}
                </Text>
              </Table.Td>
              <Table.Td>
                <StatusBadge tone={TONES[loader.state] ?? 'idle'}>{loader.state}</StatusBadge>
              </Table.Td>
              <Table.Td ta="right">{formatRate(loader.samples_per_second)}</Table.Td>
              <Table.Td ta="right">{formatShare(loader.wait_share)}</Table.Td>
              <Table.Td ta="right">{loader.wait_ms_per_batch.toFixed(1)}</Table.Td>
              <Table.Td ta="right">{loader.ready_batches}</Table.Td>
              <Table.Td ta="right">{formatBytes(loader.window_bytes)}</Table.Td>
              <Table.Td ta="right">
                {loader.p50_ms.toFixed(0)} / {loader.p99_ms.toFixed(0)}
              </Table.Td>
              <Table.Td ta="right">{formatCount(loader.retries)}</Table.Td>
              <Table.Td ta="right">
                {formatCount(loader.step)} of {formatCount(loader.steps)}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
