import { Table } from '@mantine/core';
import type { Subset } from '@/features/splits/api/splits';
import { classColor } from '@/lib/class-colors';
import { formatCount, formatShare } from '@/lib/format';
import classes from './subset-table.module.css';

interface SubsetTableProps {
  subsets: readonly Subset[];
  labelValues: readonly string[] | null;
}

export function SubsetTable({ subsets, labelValues }: SubsetTableProps) {
  const hasGroups = subsets.some(({ groups }) => groups !== null);
  const hasClasses = subsets.some((subset) => Object.keys(subset.classes).length > 0);
  return (
    <Table.ScrollContainer minWidth={620}>
      <Table verticalSpacing={6} horizontalSpacing="sm" aria-label="Subsets" className="numbers">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Subset</Table.Th>
            <Table.Th ta="right">Samples</Table.Th>
            {hasGroups && <Table.Th ta="right">Groups</Table.Th>}
            <Table.Th ta="right">Asked</Table.Th>
            <Table.Th ta="right">Got</Table.Th>
            <Table.Th className={classes.wide}>Bar: got, tick: asked</Table.Th>
            {hasClasses && <Table.Th className={classes.wide}>Classes</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {subsets.map((subset) => (
            <Table.Tr key={subset.name}>
              <Table.Th scope="row" dir="auto">
                {subset.name}
              </Table.Th>
              <Table.Td ta="right">{formatCount(subset.count)}</Table.Td>
              {hasGroups && (
                <Table.Td ta="right">
                  {subset.groups === null ? '–' : formatCount(subset.groups)}
                </Table.Td>
              )}
              <Table.Td ta="right">{formatShare(subset.asked, 1)}</Table.Td>
              <Table.Td ta="right">{formatShare(subset.achieved, 1)}</Table.Td>
              <Table.Td>
                <ShareBar asked={subset.asked} achieved={subset.achieved} />
              </Table.Td>
              {hasClasses && (
                <Table.Td>
                  <ClassBar counts={subset.classes} values={labelValues} />
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function ShareBar({ asked, achieved }: { asked: number; achieved: number }) {
  return (
    <div className={classes.bar} aria-hidden="true">
      <div className={classes.got} style={{ width: percent(achieved) }} />
      <div className={classes.tick} style={{ left: percent(asked) }} />
    </div>
  );
}

interface ClassBarProps {
  counts: Record<string, number>;
  values: readonly string[] | null;
}

function ClassBar({ counts, values }: ClassBarProps) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const names = Object.keys(counts).toSorted(
    (a, b) => (values?.indexOf(a) ?? 0) - (values?.indexOf(b) ?? 0) || a.localeCompare(b),
  );
  return (
    <div className={classes.classes}>
      <div className={classes.bar} aria-hidden="true">
        {names.map((name) => (
          <div
            key={name}
            className={classes.part}
            style={{
              width: percent((counts[name] ?? 0) / Math.max(1, total)),
              background: classColor(values, name),
            }}
          />
        ))}
      </div>
      <span className={classes.legend}>
        {names.slice(0, 4).map((name) => (
          <span key={name} className={classes.legendItem}>
            <span
              className={classes.dot}
              style={{ background: classColor(values, name) }}
              aria-hidden="true"
            />
            {name} {formatShare((counts[name] ?? 0) / Math.max(1, total), 1)}
          </span>
        ))}
        {names.length > 4 && <span>and {names.length - 4} more</span>}
      </span>
    </div>
  );
}

function percent(share: number): string {
  return `${String(Math.max(0, Math.min(1, share)) * 100)}%`;
}
