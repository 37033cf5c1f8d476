import { Button, Select, Skeleton, Tabs } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { DatasetSamples } from '@/app/dataset-samples';
import { useIngestStarted } from '@/app/use-ingest-started';
import { AppLink } from '@/components/app-link';
import { PlusIcon } from '@/components/icons';
import { PageHeader } from '@/components/page-header';
import { ProblemAlert } from '@/components/problem-alert';
import { datasetTabs } from '@/config/paths';
import { type Dataset, datasetQuery } from '@/features/datasets/api/datasets';
import { AddDataDialog } from '@/features/datasets/components/add-data-dialog';
import { SnippetPanel } from '@/features/splits/components/snippet-panel';
import { SplitList } from '@/features/splits/components/split-list';
import { versionsQuery } from '@/features/versions/api/versions';
import { VersionTable } from '@/features/versions/components/version-table';
import { useDatasetSearch } from '@/app/use-dataset-search';
import { formatBytes, formatQuantity } from '@/lib/format';
import { batchNames, columnsOf } from '@/lib/schema';
import classes from './dataset.module.css';

const TAB_NAMES = {
  samples: 'Samples',
  splits: 'Splits',
  versions: 'Versions',
  snippet: 'Snippet',
} as const;

export function DatasetRoute() {
  const { slug } = useParams({ from: '/shell/datasets/$slug/{-$tab}' });
  const dataset = useQuery(datasetQuery(slug));
  if (dataset.isError && dataset.data === undefined) {
    return (
      <>
        <PageHeader title={slug} above={<AppLink to="/datasets">Datasets</AppLink>} />
        <ProblemAlert error={dataset.error} onRetry={() => void dataset.refetch()} />
      </>
    );
  }
  if (dataset.data === undefined) {
    return (
      <>
        <PageHeader title={slug} detail=" " />
        <Skeleton height={36} mb="md" />
        <Skeleton height={420} />
      </>
    );
  }
  return <DatasetPage key={dataset.data.id} dataset={dataset.data} />;
}

function DatasetPage({ dataset }: { dataset: Dataset }) {
  const { tab = 'samples' } = useParams({ from: '/shell/datasets/$slug/{-$tab}' });
  const navigate = useNavigate();
  const [isAdding, adding] = useDisclosure(false);
  const onStarted = useIngestStarted();
  const { slug, schema } = dataset;
  const columns = columnsOf(schema);
  const image = schema.fields?.find(({ kind }) => kind === 'image')?.name ?? 'image';
  const openTab = (value: string | null) => {
    const next = datasetTabs.find((known) => known === value);
    void navigate({
      to: '/datasets/$slug/{-$tab}',
      params: { slug, tab: next === 'samples' ? undefined : next },
      search: true,
    });
  };
  return (
    <div className={classes.root} data-fill={tab === 'samples' || undefined}>
      <PageHeader
        title={slug}
        documentTitle={`${slug} – ${TAB_NAMES[tab]}`}
        above={
          <AppLink to="/datasets" size="sm">
            Datasets
          </AppLink>
        }
        detail={detailLine(dataset)}
        actions={
          <>
            <VersionSelect dataset={dataset} />
            <Button leftSection={<PlusIcon size={16} />} onClick={adding.open}>
              Add data
            </Button>
          </>
        }
      />
      <Tabs
        value={tab}
        onChange={openTab}
        keepMounted={false}
        className={classes.tabs}
        activateTabWithKeyboard={false}
      >
        <Tabs.List className={classes.list}>
          {datasetTabs.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {TAB_NAMES[name]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="samples" className={classes.panel}>
          <DatasetSamples dataset={dataset} onAddData={adding.open} />
        </Tabs.Panel>
        <Tabs.Panel value="splits" className={classes.panel}>
          <SplitList
            slug={slug}
            version={dataset.latest_version}
            columns={columns}
            fieldName={image}
          />
        </Tabs.Panel>
        <Tabs.Panel value="versions" className={classes.panel}>
          <VersionTable slug={slug} latestVersion={dataset.latest_version} />
        </Tabs.Panel>
        <Tabs.Panel value="snippet" className={classes.panel}>
          <SnippetPanel slug={slug} names={batchNames(schema)} />
        </Tabs.Panel>
      </Tabs>
      <AddDataDialog
        isOpen={isAdding}
        dataset={slug}
        onClose={adding.close}
        onStarted={onStarted}
      />
    </div>
  );
}

/** Links pin the version: choosing one writes it into the address. */
function VersionSelect({ dataset }: { dataset: Dataset }) {
  const versions = useQuery(versionsQuery(dataset.slug));
  const { search, change } = useDatasetSearch();
  const latest = dataset.latest_version;
  if (latest === null) return null;
  const numbers = versions.data?.items.map(({ number }) => number) ?? [latest];
  const shown = search.version ?? latest;
  return (
    <Select
      aria-label="Version"
      className={classes.version}
      data={[...new Set([...numbers, shown])]
        .toSorted((a, b) => b - a)
        .map((number) => ({
          value: String(number),
          label: `v${String(number)}${number === latest ? ' (latest)' : ''}`,
        }))}
      value={String(shown)}
      allowDeselect={false}
      onChange={(value) => {
        change({ version: Number(value), sample: undefined });
      }}
    />
  );
}

function detailLine({ latest_version, sample_count, byte_count, description }: Dataset): string {
  const facts =
    latest_version === null
      ? 'No version yet'
      : `${formatQuantity(sample_count, 'sample')} · ${formatBytes(byte_count)}`;
  return description === '' ? facts : `${facts} · ${description}`;
}
