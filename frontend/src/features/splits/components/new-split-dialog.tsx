import {
  Button,
  Group,
  Modal,
  MultiSelect,
  NumberInput,
  Select,
  Stack,
  TextInput,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { ProblemAlert } from '@/components/problem-alert';
import { type Split, useCreateSplit } from '@/features/splits/api/splits';
import { SubsetInputs } from '@/features/splits/components/subset-inputs';
import {
  checkRecipe,
  NAME_RULE,
  type RecipeForm,
  serverErrors,
  toRecipe,
} from '@/features/splits/recipe-form';
import type { Column } from '@/lib/schema';

interface NewSplitDialogProps {
  isOpen: boolean;
  slug: string;
  version: number;
  columns: readonly Column[];
  onClose: () => void;
  onCreated: (split: Split) => void;
}

const STRATA_KINDS = new Set(['category', 'multi_category', 'bool']);

export function NewSplitDialog(props: NewSplitDialogProps) {
  return (
    <Modal
      opened={props.isOpen}
      onClose={props.onClose}
      title={`New split of ${props.slug} v${String(props.version)}`}
      size="lg"
    >
      <NewSplitForm {...props} />
    </Modal>
  );
}

function NewSplitForm({ slug, version, columns, onClose, onCreated }: NewSplitDialogProps) {
  const create = useCreateSplit(slug);
  const group = columns.find(({ role }) => role === 'group')?.name ?? '';
  const label = columns.find(({ role, kind }) => role === 'label' && STRATA_KINDS.has(kind));
  const form = useForm<RecipeForm>({
    initialValues: {
      name: group === '' ? 'random' : `by-${group.toLowerCase().replaceAll('_', '-')}`,
      subsets: [
        { name: 'train', percent: 70 },
        { name: 'val', percent: 15 },
        { name: 'test', percent: 15 },
      ],
      groupBy: group,
      stratifyBy: label === undefined ? [] : [label.name],
      filter: '',
      seed: 0,
    },
    validate: checkRecipe,
  });
  const submit = form.onSubmit((values) => {
    create.mutate(
      { name: values.name, version, recipe: toRecipe(values) },
      {
        onSuccess: onCreated,
        onError: (error) => {
          form.setErrors(serverErrors(error));
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="sm">
        <TextInput
          label="Name"
          description={NAME_RULE}
          data-autofocus
          withAsterisk
          {...form.getInputProps('name')}
        />
        <Select
          label="Which column must stay together?"
          description="All samples with the same value go to the same subset."
          data={[
            ...columns
              .filter(({ kind }) => kind !== 'multi_category' && kind !== 'float')
              .map(({ name, role }) => ({
                value: name,
                label: role === 'group' ? `${name} (from the schema)` : name,
              })),
            { value: '', label: 'None: samples are independent' },
          ]}
          allowDeselect={false}
          {...form.getInputProps('groupBy')}
        />
        <MultiSelect
          label="Keep alike in every subset"
          description="Shares of these columns stay as equal as the groups allow."
          data={columns.filter(({ kind }) => STRATA_KINDS.has(kind)).map(({ name }) => name)}
          clearable
          clearButtonProps={{ 'aria-label': 'Clear the columns' }}
          {...form.getInputProps('stratifyBy')}
        />
        <SubsetInputs form={form} />
        <Group grow align="flex-start">
          <TextInput
            label="Only use"
            description="A filter; empty means all samples."
            placeholder="site != 'C'"
            spellCheck={false}
            {...form.getInputProps('filter')}
          />
          <NumberInput
            label="Seed"
            description="The same seed gives the same split."
            min={0}
            allowDecimal={false}
            {...form.getInputProps('seed')}
          />
        </Group>
        {create.isError && <ProblemAlert error={create.error} />}
        <Group justify="flex-end" gap="xs" mt="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={create.isPending}>
            Publish {form.values.name === '' ? 'split' : form.values.name}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
