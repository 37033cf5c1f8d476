import { Skeleton } from '@mantine/core';
import { useMemo, useState } from 'react';
import { EmptyState } from '@/components/empty-state';
import { ProblemAlert } from '@/components/problem-alert';
import type { Facet, SampleScope } from '@/features/samples/api/samples';
import { FacetPanel } from '@/features/samples/components/facet-panel';
import { FilterBar, type ScopeChange } from '@/features/samples/components/filter-bar';
import { SampleDrawer } from '@/features/samples/components/sample-drawer';
import { SampleGrid } from '@/features/samples/components/sample-grid';
import { gridShape } from '@/features/samples/grid-shape';
import { useFacets } from '@/features/samples/use-facets';
import { useShownScope } from '@/features/samples/use-shown-scope';
import { type FilterValue, togglePick } from '@/lib/filters';
import { formatCount, formatQuantity } from '@/lib/format';
import { ApiError } from '@/lib/problem';
import type { Column } from '@/lib/schema';
import classes from './sample-browser.module.css';

const MOST_VALUES = 200;
const FACET_KINDS = new Set(['category', 'multi_category', 'bool', 'int', 'float']);

interface SampleBrowserProps {
  scope: SampleScope;
  columns: readonly Column[];
  sampleCount: number;
  sampleId: string | null;
  onScopeChange: (change: ScopeChange) => void;
  onSampleChange: (sampleId: string | null) => void;
}

export function SampleBrowser(props: SampleBrowserProps) {
  const { scope, columns, sampleCount, sampleId, onScopeChange, onSampleChange } = props;
  const { shown, total, error, isStale, refetch } = useShownScope(scope);
  const facetColumns = useMemo(() => orderFacets(columns), [columns]);
  const facetNames = useMemo(() => facetColumns.map(({ name }) => name), [facetColumns]);
  const facets = useFacets(shown, facetNames);
  const [openIndex, setOpenIndex] = useState<number | null>(null);
  const label = columns.find(({ role }) => role === 'label');
  const group = columns.find(({ role }) => role === 'group');
  const isFilterError = error instanceof ApiError && error.code === 'filter.invalid';
  const onToggle = (column: string, value: FilterValue) => {
    onScopeChange({ picks: togglePick(scope.picks, column, value) });
  };
  const close = () => {
    setOpenIndex(null);
    onSampleChange(null);
  };
  return (
    <div className={classes.root} data-drawer={sampleId !== null || undefined}>
      <FilterBar
        scope={scope}
        sortColumns={columns
          .filter(({ kind }) => kind !== 'multi_category')
          .map(({ name }) => name)}
        filterError={isFilterError ? error.message : null}
        onChange={onScopeChange}
        onToggle={onToggle}
      />
      <p className={classes.total} aria-live="polite">
        {total === undefined ? ' ' : totalLine(total, sampleCount, group?.name, facets)}
      </p>
      <div className={classes.body}>
        <FacetPanel
          columns={facetColumns}
          facets={facets}
          total={sampleCount}
          picks={scope.picks}
          onToggle={onToggle}
        />
        <div className={classes.grid}>
          {error !== null && !isFilterError && <ProblemAlert error={error} onRetry={refetch} />}
          {total === undefined && error === null && <GridSkeleton />}
          {total === 0 && (
            <EmptyState title="No sample matches these filters">
              Take a filter away to see more.
            </EmptyState>
          )}
          {total !== undefined && total > 0 && (
            <SampleGrid
              scope={shown}
              total={total}
              isStale={isStale}
              labelValues={label?.values ?? null}
              selectedIndex={sampleId === null ? null : openIndex}
              onOpen={(index, sample) => {
                setOpenIndex(index);
                onSampleChange(sample.id);
              }}
            />
          )}
        </div>
      </div>
      <SampleDrawer
        scope={shown}
        total={total ?? 0}
        sampleId={sampleId}
        index={openIndex}
        columns={columns}
        onMove={(index, id) => {
          setOpenIndex(index);
          onSampleChange(id);
        }}
        onClose={close}
      />
    </div>
  );
}

/** Label and group first: they are what people look for. */
function orderFacets(columns: readonly Column[]): Column[] {
  const rank = ({ role }: Column) => (role === 'label' ? 0 : role === 'group' ? 1 : 2);
  return columns
    .filter(({ kind, role }) => role !== null || FACET_KINDS.has(kind))
    .toSorted((a, b) => rank(a) - rank(b));
}

function totalLine(
  total: number,
  sampleCount: number,
  group: string | undefined,
  facets: Map<string, Facet>,
): string {
  const samples =
    total === sampleCount
      ? formatQuantity(total, 'sample')
      : `${formatCount(total)} of ${formatQuantity(sampleCount, 'sample')}`;
  const groups = group === undefined ? undefined : facets.get(group)?.values;
  const present = groups?.filter(({ value, count }) => value !== null && count > 0).length;
  const patients =
    group === undefined || present === undefined
      ? ''
      : // The server counts the 200 most frequent values at most.
        ` · ${present >= MOST_VALUES ? 'at least ' : ''}${formatQuantity(present, group)}`;
  const { reachable } = gridShape(1200, total);
  const limit = reachable < total ? ` · scrolling shows the first ${formatCount(reachable)}` : '';
  return samples + patients + limit;
}

function GridSkeleton() {
  return (
    <div className={classes.skeleton} role="status" aria-label="Loading samples">
      {Array.from({ length: 18 }, (_, index) => (
        <Skeleton key={index} height={186} />
      ))}
    </div>
  );
}
