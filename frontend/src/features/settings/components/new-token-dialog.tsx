import { Button, Group, Modal, Select, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useState } from 'react';
import { CodeBlock } from '@/components/code-block';
import { ProblemAlert } from '@/components/problem-alert';
import { type TokenCreated, useCreateToken } from '@/features/settings/api/tokens';
import { fieldMessages } from '@/lib/problem';

interface NewTokenDialogProps {
  isOpen: boolean;
  onClose: () => void;
}

const LIFETIMES = [
  { value: '30', label: '30 days' },
  { value: '90', label: '90 days' },
  { value: '365', label: 'One year' },
  { value: '', label: 'Never expires' },
];

export function NewTokenDialog({ isOpen, onClose }: NewTokenDialogProps) {
  const [created, setCreated] = useState<TokenCreated | null>(null);
  const close = () => {
    onClose();
    setCreated(null);
  };
  return (
    <Modal
      opened={isOpen}
      onClose={close}
      title={created === null ? 'New token' : `Token ${created.name}`}
      // A click beside the dialog must not lose a secret that is shown only once.
      closeOnClickOutside={created === null}
    >
      {created === null ? (
        <NewTokenForm onCreated={setCreated} onClose={close} />
      ) : (
        <Stack gap="sm">
          <Text size="sm">
            Copy it now: it is shown this once, and only a hash of it is kept on the server.
          </Text>
          <CodeBlock code={created.secret} label="token" isWrapped />
          <Group justify="flex-end">
            <Button onClick={close}>Done</Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

interface NewTokenFormProps {
  onCreated: (token: TokenCreated) => void;
  onClose: () => void;
}

function NewTokenForm({ onCreated, onClose }: NewTokenFormProps) {
  const create = useCreateToken();
  const form = useForm({
    initialValues: { name: '', lifetime: '90' },
    validate: {
      name: (name) => (name.trim() === '' ? 'Give it a name, such as the machine.' : null),
    },
  });
  const submit = form.onSubmit(({ name, lifetime }) => {
    create.mutate(
      { name: name.trim(), expiresInDays: lifetime === '' ? null : Number(lifetime) },
      {
        onSuccess: onCreated,
        onError: (error) => {
          form.setErrors(fieldMessages(error));
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="sm">
        <TextInput
          label="Name"
          placeholder="gpu-box"
          data-autofocus
          withAsterisk
          {...form.getInputProps('name')}
        />
        <Select
          label="Expires after"
          data={LIFETIMES}
          allowDeselect={false}
          {...form.getInputProps('lifetime')}
        />
        {create.isError && <ProblemAlert error={create.error} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={create.isPending}>
            Create token
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
