import { Skeleton, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { AppLink } from '@/components/app-link';
import { Digest } from '@/components/digest';
import { EmptyState } from '@/components/empty-state';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { TimeAgo } from '@/components/time-ago';
import { versionsQuery } from '@/features/versions/api/versions';
import { formatBytes, formatCount } from '@/lib/format';

interface VersionTableProps {
  slug: string;
  latestVersion: number | null;
}

export function VersionTable({ slug, latestVersion }: VersionTableProps) {
  const versions = useQuery(versionsQuery(slug));
  if (versions.isError) {
    return <ProblemAlert error={versions.error} onRetry={() => void versions.refetch()} />;
  }
  if (versions.data === undefined) return <Skeleton height={160} radius="md" />;
  if (versions.data.items.length === 0) {
    return (
      <EmptyState title="No version yet">
        A version is published when an ingest has written and verified every sample.
      </EmptyState>
    );
  }
  const items = versions.data.items.toSorted((a, b) => b.number - a.number);
  return (
    <Panel isFlush>
      <Table.ScrollContainer minWidth={720}>
        <Table aria-label="Versions" highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Version</Table.Th>
              <Table.Th ta="right">Samples</Table.Th>
              <Table.Th ta="right">Size</Table.Th>
              <Table.Th>Digest</Table.Th>
              <Table.Th>Parent</Table.Th>
              <Table.Th ta="right">Set aside</Table.Th>
              <Table.Th>Published</Table.Th>
              <Table.Th>Job</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody className="numbers">
            {items.map((version) => (
              <Table.Tr key={version.id}>
                <Table.Td>
                  <AppLink
                    to="/datasets/$slug/{-$tab}"
                    params={{ slug, tab: undefined }}
                    search={{ version: version.number }}
                  >
                    v{version.number}
                  </AppLink>
                  {version.number === latestVersion && ' (latest)'}
                </Table.Td>
                <Table.Td ta="right">{formatCount(version.sample_count)}</Table.Td>
                <Table.Td ta="right">{formatBytes(version.byte_count)}</Table.Td>
                <Table.Td>
                  <Digest value={version.digest} label={`digest of v${String(version.number)}`} />
                </Table.Td>
                <Table.Td>{version.parent === null ? '–' : `v${String(version.parent)}`}</Table.Td>
                <Table.Td ta="right">{formatCount(version.quarantined_count)}</Table.Td>
                <Table.Td>
                  <TimeAgo time={version.created_at} />
                </Table.Td>
                <Table.Td>
                  {version.job_id === null ? (
                    '–'
                  ) : (
                    <AppLink to="/jobs/$jobId" params={{ jobId: version.job_id }}>
                      Job
                    </AppLink>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Panel>
  );
}
