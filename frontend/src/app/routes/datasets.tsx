import { useDebouncedCallback, useDisclosure } from '@mantine/hooks';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { AddDataDialog } from '@/features/datasets/components/add-data-dialog';
import { DatasetList } from '@/features/datasets/components/dataset-list';
import { useIngestStarted } from '@/app/use-ingest-started';

export function DatasetsRoute() {
  const { query = '' } = useSearch({ from: '/shell/datasets' });
  const navigate = useNavigate({ from: '/datasets' });
  const [isAdding, adding] = useDisclosure(false);
  const onStarted = useIngestStarted();
  const setQuery = useDebouncedCallback((text: string) => {
    void navigate({ search: text.trim() === '' ? {} : { query: text.trim() }, replace: true });
  }, 200);
  return (
    <>
      <DatasetList query={query} onQueryChange={setQuery} onAddData={adding.open} />
      <AddDataDialog isOpen={isAdding} onClose={adding.close} onStarted={onStarted} />
    </>
  );
}
