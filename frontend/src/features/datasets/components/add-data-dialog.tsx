import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { ProblemAlert } from '@/components/problem-alert';
import { type IngestRequest, useStartIngest } from '@/features/datasets/api/ingests';
import { ApiError, fieldMessages } from '@/lib/problem';

interface AddDataDialogProps {
  isOpen: boolean;
  /** The dataset to add to; without it the dialog asks for the name of a new one. */
  dataset?: string;
  onClose: () => void;
  onStarted: (jobId: string, dataset: string) => void;
}

const SLUG = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const NAME_RULE =
  'Small letters, digits, dots, dashes and underscores; starts with a letter or a digit.';

const FOLDER_CODES = new Set([
  'ingest.folder_not_found',
  'ingest.folder_empty',
  'ingest.folder_not_allowed',
]);

export function AddDataDialog(props: AddDataDialogProps) {
  const title = props.dataset === undefined ? 'Add data' : `Add data to ${props.dataset}`;
  return (
    <Modal opened={props.isOpen} onClose={props.onClose} title={title} size="lg">
      <AddDataForm {...props} />
    </Modal>
  );
}

function AddDataForm({ dataset, onClose, onStarted }: AddDataDialogProps) {
  const start = useStartIngest();
  const form = useForm<Omit<IngestRequest, 'isNewDataset'>>({
    initialValues: {
      dataset: dataset ?? '',
      description: '',
      path: '',
      label: '',
      group: '',
      sidecar: '',
    },
    validate: {
      dataset: (value) => (SLUG.test(value) ? null : NAME_RULE),
      path: (value) =>
        value.trim().startsWith('/') ? null : 'The full path of a folder, starting with “/”.',
    },
  });
  const submit = form.onSubmit((values) => {
    start.mutate(
      { ...values, isNewDataset: dataset === undefined },
      {
        onSuccess: (job) => {
          onStarted(job.id, values.dataset);
        },
        onError: (error) => {
          form.setErrors(errorsByInput(error));
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="sm">
        {dataset === undefined && (
          <>
            <TextInput
              label="Dataset name"
              description={NAME_RULE}
              placeholder="patches"
              data-autofocus
              withAsterisk
              {...form.getInputProps('dataset')}
            />
            <TextInput label="Description" {...form.getInputProps('description')} />
          </>
        )}
        <TextInput
          label="Folder on the server"
          description="Read by the server, not by this browser. Pictures in subfolders are found too."
          placeholder="/data/slides"
          data-autofocus={dataset === undefined ? undefined : true}
          withAsterisk
          spellCheck={false}
          {...form.getInputProps('path')}
        />
        <TextInput
          label="Table with metadata"
          description="A CSV or Parquet file inside the folder, one row a file. Optional."
          placeholder="metadata.csv"
          spellCheck={false}
          {...form.getInputProps('sidecar')}
        />
        <Group grow align="flex-start">
          <TextInput
            label="Label column"
            description="The class to learn"
            placeholder="tumor"
            {...form.getInputProps('label')}
          />
          <TextInput
            label="Group column"
            description="Never split apart"
            placeholder="patient"
            {...form.getInputProps('group')}
          />
        </Group>
        {start.isError && <ProblemAlert error={start.error} />}
        <Group justify="space-between" mt="xs">
          <Text size="xs" c="dimmed">
            Adding the same files again changes nothing.
          </Text>
          <Group gap="xs">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={start.isPending}>
              Start ingest
            </Button>
          </Group>
        </Group>
      </Stack>
    </form>
  );
}

function errorsByInput(error: unknown): Record<string, string> {
  const fields = fieldMessages(error);
  const path = fields['source.path'];
  if (path !== undefined) fields.path = path;
  if (fields.name !== undefined) fields.dataset = fields.name;
  if (error instanceof ApiError && FOLDER_CODES.has(error.code)) fields.path = error.message;
  if (error instanceof ApiError && error.code === 'ingest.sidecar_invalid') {
    fields.sidecar = error.message;
  }
  return fields;
}
