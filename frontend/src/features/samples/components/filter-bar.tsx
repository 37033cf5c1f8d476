import { ActionIcon, Button, Select, TextInput, Tooltip } from '@mantine/core';
import { type FormEvent, useState } from 'react';
import { CloseIcon, ShuffleIcon } from '@/components/icons';
import { RANDOM_ORDER, type SampleScope } from '@/features/samples/api/samples';
import type { FilterValue } from '@/lib/filters';
import { formatValue } from '@/lib/format';
import classes from './filter-bar.module.css';

export type ScopeChange = Partial<Pick<SampleScope, 'text' | 'picks' | 'order' | 'seed'>>;

interface FilterBarProps {
  scope: SampleScope;
  sortColumns: readonly string[];
  /** The server's words about the filter, shown at its field. */
  filterError: string | null;
  onChange: (change: ScopeChange) => void;
  onToggle: (column: string, value: FilterValue) => void;
}

export function FilterBar(props: FilterBarProps) {
  const { scope, sortColumns, filterError, onChange, onToggle } = props;
  const orders = [
    { value: RANDOM_ORDER, label: 'Random order' },
    { value: 'plan', label: 'Source and key' },
    ...sortColumns.flatMap((column) => [
      { value: column, label: `${column} ↑` },
      { value: `-${column}`, label: `${column} ↓` },
    ]),
  ];
  return (
    <div className={classes.root}>
      <FilterText
        key={scope.text}
        text={scope.text}
        error={filterError}
        onSubmit={(text) => {
          onChange({ text });
        }}
      />
      <Select
        aria-label="Order"
        data={orders}
        value={scope.order}
        allowDeselect={false}
        className={classes.order}
        comboboxProps={{ width: 'max-content', position: 'bottom-end' }}
        onChange={(order) => {
          onChange({ order: order ?? RANDOM_ORDER });
        }}
      />
      <Tooltip label="Other random samples">
        <ActionIcon
          size="input-sm"
          variant="default"
          aria-label="Shuffle again"
          disabled={scope.order !== RANDOM_ORDER}
          onClick={() => {
            onChange({ seed: scope.seed + 1 });
          }}
        >
          <ShuffleIcon size={16} />
        </ActionIcon>
      </Tooltip>
      <PickChips scope={scope} onChange={onChange} onToggle={onToggle} />
    </div>
  );
}

interface FilterTextProps {
  text: string;
  error: string | null;
  onSubmit: (text: string) => void;
}

function FilterText({ text, error, onSubmit }: FilterTextProps) {
  const [draft, setDraft] = useState(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit(draft.trim());
  };
  return (
    <form role="search" className={classes.form} onSubmit={submit}>
      <TextInput
        aria-label="Filter"
        placeholder="Filter, for example: site != 'C' AND age >= 60"
        value={draft}
        error={error}
        spellCheck={false}
        autoComplete="off"
        classNames={{ input: 'mono' }}
        onChange={(event) => {
          setDraft(event.currentTarget.value);
        }}
        rightSection={
          draft !== '' && (
            <ActionIcon
              size="sm"
              aria-label="Clear the filter text"
              onClick={() => {
                setDraft('');
                onSubmit('');
              }}
            >
              <CloseIcon size={14} />
            </ActionIcon>
          )
        }
      />
      <Button type="submit" variant="default" disabled={draft.trim() === text && error === null}>
        Apply
      </Button>
    </form>
  );
}

type PickChipsProps = Pick<FilterBarProps, 'scope' | 'onChange' | 'onToggle'>;

function PickChips({ scope, onChange, onToggle }: PickChipsProps) {
  const chips = Object.entries(scope.picks).flatMap(([column, values]) =>
    values.map((value) => ({
      column,
      value,
      text: value === null ? 'missing' : formatValue(value),
    })),
  );
  if (chips.length === 0) return null;
  return (
    <ul className={classes.chips} aria-label="Active filters">
      {chips.map(({ column, value, text }) => (
        <li key={`${column} ${String(value)}`}>
          <button
            type="button"
            className={classes.chip}
            aria-label={`Remove filter ${column} = ${text}`}
            onClick={() => {
              onToggle(column, value);
            }}
          >
            <span className={classes.chipColumn}>{column}</span>
            <span dir="auto">{text}</span>
            <CloseIcon size={12} />
          </button>
        </li>
      ))}
      <li>
        <Button
          size="compact-xs"
          variant="subtle"
          onClick={() => {
            onChange({ picks: {} });
          }}
        >
          Clear all
        </Button>
      </li>
    </ul>
  );
}
