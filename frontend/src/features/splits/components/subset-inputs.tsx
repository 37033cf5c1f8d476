import { ActionIcon, Button, Group, NumberInput, Text, TextInput } from '@mantine/core';
import type { UseFormReturnType } from '@mantine/form';
import { PlusIcon, TrashIcon } from '@/components/icons';
import { percentTotal, type RecipeForm } from '@/features/splits/recipe-form';
import classes from './subset-inputs.module.css';

export function SubsetInputs({ form }: { form: UseFormReturnType<RecipeForm> }) {
  const { subsets } = form.values;
  const total = percentTotal(subsets);
  const error = form.errors.subsets;
  return (
    <fieldset className={classes.root}>
      <legend className={classes.legend}>Subsets</legend>
      {subsets.map((_, index) => (
        <Group key={index} gap="xs" align="flex-start" wrap="nowrap">
          <TextInput
            aria-label={`Name of subset ${String(index + 1)}`}
            className={classes.name}
            {...form.getInputProps(`subsets.${String(index)}.name`)}
          />
          <NumberInput
            aria-label={`Share of subset ${String(index + 1)} in percent`}
            suffix=" %"
            min={0}
            max={100}
            decimalScale={3}
            hideControls
            className={classes.percent}
            {...form.getInputProps(`subsets.${String(index)}.percent`)}
          />
          <ActionIcon
            size="input-sm"
            aria-label={`Remove subset ${String(index + 1)}`}
            disabled={subsets.length === 1}
            onClick={() => {
              form.removeListItem('subsets', index);
            }}
          >
            <TrashIcon size={16} />
          </ActionIcon>
        </Group>
      ))}
      <div className={classes.strip} aria-hidden="true">
        {subsets.map(({ percent }, index) => (
          <div key={index} style={{ width: `${String(Number(percent) || 0)}%` }} />
        ))}
      </div>
      <Group justify="space-between">
        <Button
          size="compact-sm"
          variant="subtle"
          leftSection={<PlusIcon size={14} />}
          onClick={() => {
            form.insertListItem('subsets', { name: '', percent: Math.max(0, 100 - total) });
          }}
        >
          Add subset
        </Button>
        <Text
          size="xs"
          c={error === undefined ? 'dimmed' : 'var(--mantine-color-error)'}
          aria-live="polite"
        >
          {error ??
            (total === 100 ? 'Together 100 %' : `Together ${String(total)} %, the rest is unused`)}
        </Text>
      </Group>
    </fieldset>
  );
}
