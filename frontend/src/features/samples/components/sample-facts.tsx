import { Group, Table, Title } from '@mantine/core';
import { CopyButton } from '@/components/copy-button';
import type { SampleDetail } from '@/features/samples/api/samples';
import { classColor } from '@/lib/class-colors';
import { formatBytes, formatValue } from '@/lib/format';
import type { Column } from '@/lib/schema';
import classes from './sample-facts.module.css';

interface SampleFactsProps {
  sample: SampleDetail;
  columns: readonly Column[];
}

export function SampleFacts({ sample, columns }: SampleFactsProps) {
  const known = new Set(columns.map(({ name }) => name));
  const extra = Object.keys(sample.metadata).filter((name) => !known.has(name));
  return (
    <>
      <Title order={3}>Metadata</Title>
      <Table
        className={classes.table}
        verticalSpacing={5}
        horizontalSpacing={0}
        aria-label="Metadata"
      >
        <Table.Tbody>
          {columns.map(({ name, role, values }) => {
            const value = sample.metadata[name] ?? (role === 'label' ? sample.label : null);
            return (
              <Fact key={name} name={name} role={role}>
                <Group gap={6} wrap="nowrap">
                  {role === 'label' && (
                    <span
                      className={classes.dot}
                      style={{ background: classColor(values, value) }}
                      aria-hidden="true"
                    />
                  )}
                  <span dir="auto">{formatValue(value)}</span>
                </Group>
              </Fact>
            );
          })}
          {extra.map((name) => (
            <Fact key={name} name={name} role={null}>
              <span dir="auto">{formatValue(sample.metadata[name])}</span>
            </Fact>
          ))}
        </Table.Tbody>
      </Table>
      <Title order={3}>Where it is</Title>
      <Table
        className={classes.table}
        verticalSpacing={5}
        horizontalSpacing={0}
        aria-label="Identity"
      >
        <Table.Tbody>
          <CopyFact name="Sample id" value={sample.id} />
          <CopyFact name="Source" value={sample.source} />
          <CopyFact name="Key" value={sample.key} />
          <Fact name="Row" role={null}>
            <span className="numbers">{sample.row}</span>
          </Fact>
          {sample.fields.map((field) => (
            <CopyFact
              key={field.name}
              name={`${field.name} object, ${formatBytes(field.size)}`}
              value={field.object_id}
            />
          ))}
          {sample.fields.map((field) => (
            <CopyFact key={field.name} name={`${field.name} BLAKE3`} value={field.blake3} />
          ))}
        </Table.Tbody>
      </Table>
    </>
  );
}

interface FactProps {
  name: string;
  role: string | null;
  children: React.ReactNode;
}

function Fact({ name, role, children }: FactProps) {
  return (
    <Table.Tr>
      <Table.Th scope="row" className={classes.name} dir="auto">
        {name}
        {role !== null && <span className={classes.role}>{role}</span>}
      </Table.Th>
      <Table.Td className={classes.value}>{children}</Table.Td>
    </Table.Tr>
  );
}

function CopyFact({ name, value }: { name: string; value: string }) {
  return (
    <Fact name={name} role={null}>
      <Group gap={4} wrap="nowrap" justify="space-between">
        <span className={`mono ${classes.long ?? ''}`} dir="auto">
          {value}
        </span>
        <CopyButton value={value} label={`Copy ${name}`} />
      </Group>
    </Fact>
  );
}
