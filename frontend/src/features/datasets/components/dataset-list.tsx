import { Button, Skeleton, Text, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { CodeBlock } from '@/components/code-block';
import { EmptyState } from '@/components/empty-state';
import { DatasetsIcon, PlusIcon, SearchIcon } from '@/components/icons';
import { PageHeader } from '@/components/page-header';
import { ProblemAlert } from '@/components/problem-alert';
import { datasetsQuery } from '@/features/datasets/api/datasets';
import { DatasetCard } from '@/features/datasets/components/dataset-card';
import { formatQuantity } from '@/lib/format';
import classes from './dataset-list.module.css';

const FIRST_COMMANDS = `penstock demo
penstock ingest patches ./slides --label tumor --group patient`;

interface DatasetListProps {
  query: string;
  onQueryChange: (query: string) => void;
  onAddData: () => void;
}

export function DatasetList({ query, onQueryChange, onAddData }: DatasetListProps) {
  const datasets = useQuery(datasetsQuery(query));
  const count = datasets.data?.total ?? datasets.data?.items.length;
  return (
    <>
      <PageHeader
        title="Datasets"
        detail={
          <span aria-live="polite">
            {count === undefined ? ' ' : formatQuantity(count, 'dataset')}
          </span>
        }
        actions={
          <>
            <TextInput
              type="search"
              aria-label="Search datasets"
              placeholder="Search"
              leftSection={<SearchIcon size={16} />}
              defaultValue={query}
              onChange={(event) => {
                onQueryChange(event.currentTarget.value);
              }}
            />
            <Button leftSection={<PlusIcon size={16} />} onClick={onAddData}>
              Add data
            </Button>
          </>
        }
      />
      {datasets.isError && datasets.data === undefined ? (
        <ProblemAlert error={datasets.error} onRetry={() => void datasets.refetch()} />
      ) : datasets.data === undefined ? (
        <CardSkeletons />
      ) : datasets.data.items.length > 0 ? (
        <ul
          className={classes.cards}
          aria-label="Datasets"
          data-stale={datasets.isPlaceholderData || undefined}
        >
          {datasets.data.items.map((dataset) => (
            <DatasetCard key={dataset.id} dataset={dataset} />
          ))}
        </ul>
      ) : query !== '' ? (
        <EmptyState title={`No dataset matches “${query}”`}>
          Names and descriptions are searched.
        </EmptyState>
      ) : (
        <FirstDataset />
      )}
    </>
  );
}

function FirstDataset() {
  return (
    <EmptyState title="No datasets yet" icon={<DatasetsIcon size={28} />}>
      <Text size="sm" c="dimmed">
        Add a folder that the server can read with “Add data”, or from a terminal:
      </Text>
      <CodeBlock code={FIRST_COMMANDS} label="first commands" />
    </EmptyState>
  );
}

function CardSkeletons() {
  return (
    <div className={classes.cards} aria-label="Loading datasets" role="status">
      {Array.from({ length: 6 }, (_, index) => (
        <Skeleton key={index} height={176} radius="md" />
      ))}
    </div>
  );
}
