import { Button, Group, Skeleton, Stack, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useQuery } from '@tanstack/react-query';
import { EmptyState } from '@/components/empty-state';
import { PlusIcon } from '@/components/icons';
import { ProblemAlert } from '@/components/problem-alert';
import { splitsQuery } from '@/features/splits/api/splits';
import { NewSplitDialog } from '@/features/splits/components/new-split-dialog';
import { SplitCard } from '@/features/splits/components/split-card';
import { formatQuantity } from '@/lib/format';
import type { Column } from '@/lib/schema';

interface SplitListProps {
  slug: string;
  version: number | null;
  columns: readonly Column[];
  fieldName: string;
}

export function SplitList({ slug, version, columns, fieldName }: SplitListProps) {
  const splits = useQuery(splitsQuery(slug));
  const [isNewOpen, newDialog] = useDisclosure(false);
  const label = columns.find(({ role }) => role === 'label');
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Text size="sm" c="dimmed" aria-live="polite">
          {splits.data === undefined ? ' ' : formatQuantity(splits.data.items.length, 'split')}
        </Text>
        <Button
          leftSection={<PlusIcon size={16} />}
          disabled={version === null}
          onClick={newDialog.open}
        >
          New split
        </Button>
      </Group>
      {splits.isError && (
        <ProblemAlert error={splits.error} onRetry={() => void splits.refetch()} />
      )}
      {splits.isPending && <Skeleton height={240} radius="md" />}
      {splits.data?.items.length === 0 && (
        <EmptyState title="No splits yet">
          A split gives each sample to one subset. Choose the column that must not be torn apart,
          such as the patient, and Penstock proves that nothing leaks.
        </EmptyState>
      )}
      {splits.data?.items.map((split) => (
        <SplitCard
          key={split.id}
          split={split}
          labelName={label?.name ?? null}
          labelValues={label?.values ?? null}
          fieldName={fieldName}
        />
      ))}
      {version !== null && (
        <NewSplitDialog
          isOpen={isNewOpen}
          slug={slug}
          version={version}
          columns={columns}
          onClose={newDialog.close}
          onCreated={(split) => {
            newDialog.close();
            notifications.show({
              title: 'Split published',
              message: `${split.name}@${String(split.number)} on v${String(split.version)}`,
            });
          }}
        />
      )}
    </Stack>
  );
}
