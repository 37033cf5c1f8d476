import { Button, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { useDatasetSearch } from '@/app/use-dataset-search';
import { EmptyState } from '@/components/empty-state';
import { FolderIcon } from '@/components/icons';
import type { Dataset } from '@/features/datasets/api/datasets';
import { RANDOM_ORDER, type SampleScope } from '@/features/samples/api/samples';
import type { ScopeChange } from '@/features/samples/components/filter-bar';
import { SampleBrowser } from '@/features/samples/components/sample-browser';
import { versionsQuery } from '@/features/versions/api/versions';
import { columnsOf } from '@/lib/schema';

interface DatasetSamplesProps {
  dataset: Dataset;
  onAddData: () => void;
}

const NO_PICKS = {};

export function DatasetSamples({ dataset, onAddData }: DatasetSamplesProps) {
  const { slug, latest_version: latest } = dataset;
  const { search, change } = useDatasetSearch();
  const versions = useQuery(versionsQuery(slug));
  const { filter = '', picks = NO_PICKS, order = RANDOM_ORDER, seed = 0 } = search;
  const version = search.version ?? latest ?? 0;
  const scope: SampleScope = useMemo(
    () => ({ slug, version, text: filter, picks, order, seed }),
    [slug, version, filter, picks, order, seed],
  );
  const pinned = versions.data?.items.find(({ number }) => number === version);
  const schema = pinned?.schema ?? dataset.schema;
  const columns = useMemo(() => columnsOf(schema), [schema]);
  if (latest === null) {
    return (
      <EmptyState title="This dataset is empty" icon={<FolderIcon size={28} />}>
        <Text size="sm" c="dimmed">
          Add a folder of pictures; the samples show up here when the version is published.
        </Text>
        <div>
          <Button onClick={onAddData}>Add the first data</Button>
        </div>
      </EmptyState>
    );
  }
  const onScopeChange = (next: ScopeChange) => {
    change({
      ...('text' in next ? { filter: next.text === '' ? undefined : next.text } : {}),
      ...(next.picks === undefined
        ? {}
        : { picks: Object.keys(next.picks).length === 0 ? undefined : next.picks }),
      ...(next.order === undefined
        ? {}
        : { order: next.order === RANDOM_ORDER ? undefined : next.order }),
      ...(next.seed === undefined ? {} : { seed: next.seed }),
      sample: undefined,
    });
  };
  return (
    <SampleBrowser
      scope={scope}
      columns={columns}
      sampleCount={pinned?.sample_count ?? dataset.sample_count}
      sampleId={search.sample ?? null}
      onScopeChange={onScopeChange}
      onSampleChange={(sample) => {
        // Stepping through samples must not fill the history: Back leaves the drawer.
        change({ sample: sample ?? undefined }, { isReplacing: search.sample !== undefined });
      }}
    />
  );
}
