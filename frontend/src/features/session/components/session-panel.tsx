import { Button, Group, Text, Title } from '@mantine/core';
import { useSuspenseQuery } from '@tanstack/react-query';
import { LogoutIcon } from '@/components/icons';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { sessionQuery, useLogout } from '@/features/session/api/session';

export function SessionPanel({ onLoggedOut }: { onLoggedOut: () => void }) {
  const { data } = useSuspenseQuery(sessionQuery);
  const logout = useLogout();
  return (
    <Panel labelledBy="session">
      <Title order={2} id="session" mb="xs">
        Session
      </Title>
      <Group justify="space-between">
        <Text size="sm">
          Logged in as <strong dir="auto">{data.user.name}</strong>, {data.user.role}.
        </Text>
        <Button
          size="xs"
          variant="default"
          leftSection={<LogoutIcon size={14} />}
          loading={logout.isPending}
          onClick={() => {
            logout.mutate(undefined, { onSuccess: onLoggedOut });
          }}
        >
          Log out
        </Button>
      </Group>
      {logout.isError && <ProblemAlert error={logout.error} />}
    </Panel>
  );
}
