import { Button, Group, Skeleton, Table, Text, Title } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { PlusIcon } from '@/components/icons';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { TimeAgo } from '@/components/time-ago';
import { tokensQuery } from '@/features/settings/api/tokens';
import { NewTokenDialog } from '@/features/settings/components/new-token-dialog';
import { RevokeButton } from '@/features/settings/components/revoke-button';
import { formatDay } from '@/lib/format';

export function TokenPanel() {
  const tokens = useQuery(tokensQuery);
  const [isNewOpen, newDialog] = useDisclosure(false);
  return (
    <Panel labelledBy="tokens">
      <Group justify="space-between" mb="xs">
        <Title order={2} id="tokens">
          API tokens
        </Title>
        <Button size="xs" leftSection={<PlusIcon size={14} />} onClick={newDialog.open}>
          New token
        </Button>
      </Group>
      <Text size="sm" c="dimmed" mb="sm">
        For scripts on other machines: set it as PENSTOCK_TOKEN. A token may do what you may.
      </Text>
      {tokens.isError && (
        <ProblemAlert error={tokens.error} onRetry={() => void tokens.refetch()} />
      )}
      {tokens.isPending && <Skeleton height={96} />}
      {tokens.data?.items.length === 0 && <Text size="sm">No tokens yet.</Text>}
      {tokens.data !== undefined && tokens.data.items.length > 0 && (
        <Table.ScrollContainer minWidth={620}>
          <Table aria-label="API tokens" horizontalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th>Begins with</Table.Th>
                <Table.Th>Created</Table.Th>
                <Table.Th>Last used</Table.Th>
                <Table.Th>Expires</Table.Th>
                <Table.Th>
                  <span className="visually-hidden">Actions</span>
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody className="numbers">
              {tokens.data.items.map((token) => (
                <Table.Tr key={token.id}>
                  <Table.Td dir="auto">{token.name}</Table.Td>
                  <Table.Td className="mono">{token.prefix}</Table.Td>
                  <Table.Td>
                    <TimeAgo time={token.created_at} />
                  </Table.Td>
                  <Table.Td>
                    {token.last_used_at == null ? 'never' : <TimeAgo time={token.last_used_at} />}
                  </Table.Td>
                  <Table.Td>
                    {token.expires_at == null ? 'never' : formatDay(token.expires_at)}
                  </Table.Td>
                  <Table.Td ta="right">
                    <RevokeButton token={token} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      <NewTokenDialog isOpen={isNewOpen} onClose={newDialog.close} />
    </Panel>
  );
}
