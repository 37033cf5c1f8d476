import { Skeleton, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { AppLink } from '@/components/app-link';
import { LoaderSnippet } from '@/components/loader-snippet';
import { ProblemAlert } from '@/components/problem-alert';
import { datasetsQuery } from '@/features/datasets/api/datasets';
import { splitsQuery } from '@/features/splits/api/splits';
import { batchNames } from '@/lib/schema';

/** Lines that start a loader on a dataset that this server has, the demo before others. */
export function StartLines() {
  const datasets = useQuery(datasetsQuery(''));
  const trainable = datasets.data?.items.filter(({ default_split }) => default_split !== null);
  const dataset = trainable?.find(({ slug }) => slug === 'demo') ?? trainable?.[0];
  const splits = useQuery({
    ...splitsQuery(dataset?.slug ?? ''),
    enabled: dataset !== undefined,
  });
  const split = splits.data?.items.find(({ is_default }) => is_default);
  const subset = split?.subsets[0];
  const failed = [datasets, splits].find(({ isError }) => isError);
  if (failed !== undefined) {
    return <ProblemAlert error={failed.error} onRetry={() => void failed.refetch()} />;
  }
  if (datasets.isPending || (dataset !== undefined && splits.isPending)) {
    return <Skeleton height={140} radius="md" />;
  }
  if (dataset === undefined || split === undefined || subset === undefined) {
    return (
      <Text size="sm" c="dimmed">
        A loader reads a split: <AppLink to="/datasets">add data and make one</AppLink> first.
      </Text>
    );
  }
  return (
    <>
      <Text size="sm" c="dimmed">
        Start one: these lines stream {dataset.slug}, and this page moves by itself.
      </Text>
      <LoaderSnippet
        label="training lines"
        target={{
          dataset: dataset.slug,
          version: split.version,
          split: split.name,
          splitNumber: split.number,
          subset: subset.name,
          names: batchNames(dataset.schema),
        }}
      />
    </>
  );
}
