import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { ProblemAlert } from '@/components/problem-alert';
import { type Token, useRevokeToken } from '@/features/settings/api/tokens';

export function RevokeButton({ token }: { token: Token }) {
  const [isOpen, dialog] = useDisclosure(false);
  const revoke = useRevokeToken();
  const confirm = () => {
    revoke.mutate(token.id, {
      onSuccess: () => {
        dialog.close();
        notifications.show({ title: 'Token revoked', message: token.name });
      },
    });
  };
  return (
    <>
      <Button
        size="compact-xs"
        variant="default"
        aria-label={`Revoke ${token.name}`}
        onClick={dialog.open}
      >
        Revoke
      </Button>
      <Modal opened={isOpen} onClose={dialog.close} title={`Revoke ${token.name}?`}>
        <Stack gap="sm">
          <Text size="sm">Scripts that use it are refused from now on. This cannot be undone.</Text>
          {revoke.isError && <ProblemAlert error={revoke.error} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" data-autofocus onClick={dialog.close}>
              Keep it
            </Button>
            <Button color="red" loading={revoke.isPending} onClick={confirm}>
              Revoke token
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
