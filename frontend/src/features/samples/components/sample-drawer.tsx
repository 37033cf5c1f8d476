import { ActionIcon, Drawer, Group, Skeleton, Stack, Text, Tooltip } from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { NextIcon, PreviousIcon } from '@/components/icons';
import { ProblemAlert } from '@/components/problem-alert';
import {
  sampleQuery,
  SAMPLES_A_PAGE,
  samplesPageQuery,
  type SampleScope,
} from '@/features/samples/api/samples';
import { SampleFacts } from '@/features/samples/components/sample-facts';
import { SampleImage } from '@/features/samples/components/sample-image';
import { formatCount } from '@/lib/format';
import type { Column } from '@/lib/schema';

interface SampleDrawerProps {
  scope: SampleScope;
  total: number;
  sampleId: string | null;
  /** The place of the sample in the grid's order; null after a reload, when it is not known. */
  index: number | null;
  columns: readonly Column[];
  onMove: (index: number, sampleId: string) => void;
  onClose: () => void;
}

export function SampleDrawer(props: SampleDrawerProps) {
  const { scope, total, sampleId, index, columns, onMove, onClose } = props;
  const [isMaskShown, setIsMaskShown] = useState(true);
  const queryClient = useQueryClient();
  const sample = useQuery({
    ...sampleQuery(scope.slug, scope.version, sampleId ?? ''),
    enabled: sampleId !== null,
  });
  const move = async (step: number) => {
    const from = index ?? -1;
    const target = from + step;
    if (sampleId === null || target < 0 || target >= total) return;
    const page = Math.floor(target / SAMPLES_A_PAGE);
    const { items } = await queryClient.ensureQueryData(samplesPageQuery(scope, page));
    const next = items[target - page * SAMPLES_A_PAGE];
    if (next !== undefined) onMove(target, next.id);
  };
  const toggleMask = () => {
    setIsMaskShown((isShown) => !isShown);
  };
  useHotkeys([
    ['j', () => void move(1)],
    ['k', () => void move(-1)],
    ['ArrowRight', () => void move(1)],
    ['ArrowLeft', () => void move(-1)],
    ['m', toggleMask],
  ]);
  const isOpen = sampleId !== null;
  return (
    <Drawer
      opened={isOpen}
      onClose={onClose}
      position="right"
      size="34rem"
      withOverlay={false}
      lockScroll={false}
      title={sample.data === undefined ? 'Sample' : `Sample ${sample.data.key}`}
      closeButtonProps={{ 'aria-label': 'Close the sample' }}
      shadow="xl"
    >
      <Stack gap="sm">
        <Group justify="space-between">
          <Text size="xs" c="dimmed" className="numbers">
            {index === null
              ? `One of ${formatCount(total)}`
              : `${formatCount(index + 1)} of ${formatCount(total)}`}
          </Text>
          <Group gap={4}>
            <Tooltip label="Previous (k)">
              <ActionIcon
                aria-label="Previous sample"
                disabled={index === null || index === 0}
                onClick={() => void move(-1)}
              >
                <PreviousIcon />
              </ActionIcon>
            </Tooltip>
            <Tooltip label="Next (j)">
              <ActionIcon
                aria-label="Next sample"
                disabled={index !== null && index + 1 >= total}
                onClick={() => void move(1)}
              >
                <NextIcon />
              </ActionIcon>
            </Tooltip>
          </Group>
        </Group>
        {sample.isError && (
          <ProblemAlert error={sample.error} onRetry={() => void sample.refetch()} />
        )}
        {sample.data === undefined ? (
          sample.isPending && <Skeleton height={420} />
        ) : (
          <>
            <SampleImage sample={sample.data} isMaskShown={isMaskShown} onToggleMask={toggleMask} />
            <SampleFacts sample={sample.data} columns={columns} />
          </>
        )}
      </Stack>
    </Drawer>
  );
}
