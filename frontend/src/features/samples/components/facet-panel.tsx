import { Checkbox, Skeleton, Text, UnstyledButton } from '@mantine/core';
import { useState } from 'react';
import type { Facet } from '@/features/samples/api/samples';
import { classColor } from '@/lib/class-colors';
import { type FilterValue, isPicked, type Picks } from '@/lib/filters';
import { formatCount, formatValue } from '@/lib/format';
import type { Column } from '@/lib/schema';
import classes from './facet-panel.module.css';

const FIRST_VALUES = 8;

interface FacetPanelProps {
  columns: readonly Column[];
  facets: Map<string, Facet>;
  /** All samples of the version: the full length of a bar. */
  total: number;
  picks: Picks;
  onToggle: (column: string, value: FilterValue) => void;
}

export function FacetPanel({ columns, facets, total, picks, onToggle }: FacetPanelProps) {
  return (
    <aside className={classes.root} aria-label="Filters">
      {columns.map((column) => {
        const facet = facets.get(column.name);
        return (
          <fieldset key={column.name} className={classes.facet}>
            <legend className={classes.legend} dir="auto">
              {column.name}
              {column.role !== null && <span className={classes.role}>{column.role}</span>}
            </legend>
            {facet === undefined ? (
              <Skeleton height={54} />
            ) : (
              <FacetValues
                column={column}
                facet={facet}
                total={total}
                picks={picks}
                onToggle={onToggle}
              />
            )}
          </fieldset>
        );
      })}
    </aside>
  );
}

interface FacetValuesProps {
  column: Column;
  facet: Facet;
  total: number;
  picks: Picks;
  onToggle: (column: string, value: FilterValue) => void;
}

function FacetValues({ column, facet, total, picks, onToggle }: FacetValuesProps) {
  const [isOpen, setIsOpen] = useState(false);
  if (facet.values === null) {
    return (
      <Text size="xs" c="dimmed" className="numbers">
        {formatValue(facet.min)} to {formatValue(facet.max)}
      </Text>
    );
  }
  const shown = isOpen ? facet.values : facet.values.slice(0, FIRST_VALUES);
  const hidden = facet.values.length - FIRST_VALUES;
  return (
    <>
      <ul className={classes.values}>
        {shown.map(({ value: raw, count }) => {
          const value = raw as FilterValue;
          return (
            <li key={String(value)} className={classes.value}>
              <Checkbox
                size="xs"
                label={<span dir="auto">{value === null ? 'missing' : formatValue(value)}</span>}
                aria-label={`${column.name} ${value === null ? 'missing' : formatValue(value)}, ${formatCount(count)}`}
                checked={isPicked(picks, column.name, value)}
                classNames={{ body: classes.checkBody ?? '', label: classes.checkLabel ?? '' }}
                onChange={() => {
                  onToggle(column.name, value);
                }}
              />
              <span className={classes.count}>{formatCount(count)}</span>
              <span
                className={classes.bar}
                style={{
                  width: `${String((count / Math.max(1, total)) * 100)}%`,
                  background:
                    column.role === 'label' ? classColor(column.values, value) : undefined,
                }}
              />
            </li>
          );
        })}
      </ul>
      {hidden > 0 && (
        <UnstyledButton
          className={classes.more}
          aria-expanded={isOpen}
          onClick={() => {
            setIsOpen(!isOpen);
          }}
        >
          {isOpen ? 'Show fewer' : `Show ${formatCount(hidden)} more`}
          <span className="visually-hidden"> values of {column.name}</span>
        </UnstyledButton>
      )}
    </>
  );
}
