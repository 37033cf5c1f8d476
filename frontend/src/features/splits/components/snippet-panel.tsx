import { Group, NumberInput, Select, Skeleton, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { AppLink } from '@/components/app-link';
import { CodeBlock } from '@/components/code-block';
import { EmptyState } from '@/components/empty-state';
import { LoaderSnippet } from '@/components/loader-snippet';
import { Panel } from '@/components/panel';
import { ProblemAlert } from '@/components/problem-alert';
import { splitsQuery } from '@/features/splits/api/splits';
import { useSnippetOutput } from '@/lib/use-snippet-output';

interface SnippetPanelProps {
  slug: string;
  names: readonly string[];
}

export function SnippetPanel({ slug, names }: SnippetPanelProps) {
  const splits = useQuery(splitsQuery(slug));
  const [splitId, setSplitId] = useState<string | null>(null);
  const [subsetName, setSubsetName] = useState<string | null>(null);
  const [batchSize, setBatchSize] = useState<number | string>(256);
  const [output] = useSnippetOutput();
  if (splits.isError) {
    return <ProblemAlert error={splits.error} onRetry={() => void splits.refetch()} />;
  }
  if (splits.data === undefined) return <Skeleton height={200} radius="md" />;
  const { items } = splits.data;
  const split =
    items.find(({ id }) => id === splitId) ?? items.find((one) => one.is_default) ?? items[0];
  const subset = split?.subsets.find(({ name }) => name === subsetName) ?? split?.subsets[0];
  if (split === undefined || subset === undefined) {
    return (
      <EmptyState title="Training needs a split">
        <AppLink to="/datasets/$slug/{-$tab}" params={{ slug, tab: 'splits' }}>
          Make one under Splits
        </AppLink>
      </EmptyState>
    );
  }
  return (
    <Stack gap="md">
      <Panel>
        <Stack gap="sm">
          <Title order={2}>In your training script</Title>
          <Group gap="sm">
            <Select
              label="Split"
              data={items.map(({ id, name, number }) => ({
                value: id,
                label: `${name}@${String(number)}`,
              }))}
              value={split.id}
              allowDeselect={false}
              onChange={setSplitId}
            />
            <Select
              label="Subset"
              data={split.subsets.map(({ name }) => name)}
              value={subset.name}
              allowDeselect={false}
              onChange={setSubsetName}
            />
            <NumberInput
              label="Batch size"
              min={1}
              max={65_536}
              allowDecimal={false}
              value={batchSize}
              onChange={setBatchSize}
            />
          </Group>
          <LoaderSnippet
            label="training lines"
            target={{
              dataset: slug,
              version: split.version,
              split: split.name,
              splitNumber: split.number,
              subset: subset.name,
              batchSize: Number(batchSize) || 1,
              names,
            }}
          />
          <Text size="sm" c="dimmed">
            The version and the split are pinned: these lines give the same samples at any later
            time. The loader shows up under{' '}
            <AppLink to="/live" underline="always">
              Live
            </AppLink>{' '}
            when it starts.
          </Text>
        </Stack>
      </Panel>
      <Panel>
        <Stack gap="sm">
          <Title order={2}>On another machine</Title>
          <Text size="sm">
            On this machine the server is found by itself. Elsewhere name it, with a token from{' '}
            <AppLink to="/settings" underline="always">
              Settings
            </AppLink>
            :
          </Text>
          <CodeBlock
            label="environment"
            code={`pip install ${output === 'torch' ? '"penstock[torch]"' : 'penstock'}\nexport PENSTOCK_URL=${window.location.origin}\nexport PENSTOCK_TOKEN=pst_...`}
          />
        </Stack>
      </Panel>
    </Stack>
  );
}
