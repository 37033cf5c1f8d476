import { Table, Title } from '@mantine/core';
import { AppLink } from '@/components/app-link';
import { Panel } from '@/components/panel';
import { StatusBadge } from '@/components/status-badge';
import { TimeAgo } from '@/components/time-ago';
import type { Run } from '@/features/live/api/runs';
import { formatCount, formatDuration } from '@/lib/format';

export function EndedRuns({ runs }: { runs: readonly Run[] }) {
  return (
    <section aria-labelledby="ended-runs">
      <Title order={2} id="ended-runs" mb="xs">
        Ended
      </Title>
      <Panel isFlush>
        <Table.ScrollContainer minWidth={640}>
          <Table aria-labelledby="ended-runs" highlightOnHover>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Run</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th>Data</Table.Th>
                <Table.Th ta="right">Ranks</Table.Th>
                <Table.Th ta="right">Samples</Table.Th>
                <Table.Th ta="right">Ran</Table.Th>
                <Table.Th>Ended</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody className="numbers">
              {runs.map((run) => {
                const end = run.ended_at ?? run.last_seen_at;
                return (
                  <Table.Tr key={run.id}>
                    <Table.Td>
                      <AppLink to="/live/$runId" params={{ runId: run.id }} dir="auto">
                        {run.name}
                      </AppLink>
                    </Table.Td>
                    <Table.Td>
                      <StatusBadge tone={run.state === 'failed' ? 'bad' : 'idle'}>
                        {run.state}
                      </StatusBadge>
                    </Table.Td>
                    <Table.Td dir="auto">
                      {run.dataset}@{run.version} {run.split}/{run.subset}
                    </Table.Td>
                    <Table.Td ta="right">{run.world_size}</Table.Td>
                    <Table.Td ta="right">{formatCount(run.totals.samples)}</Table.Td>
                    <Table.Td ta="right">
                      {formatDuration((Date.parse(end) - Date.parse(run.started_at)) / 1000)}
                    </Table.Td>
                    <Table.Td>
                      <TimeAgo time={end} />
                    </Table.Td>
                  </Table.Tr>
                );
              })}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </Panel>
    </section>
  );
}
