import { Group, Text, Title } from '@mantine/core';
import { Digest } from '@/components/digest';
import { AlertIcon, CheckIcon } from '@/components/icons';
import { LoaderSnippet } from '@/components/loader-snippet';
import { Panel } from '@/components/panel';
import { StatusBadge } from '@/components/status-badge';
import { TimeAgo } from '@/components/time-ago';
import type { Split } from '@/features/splits/api/splits';
import { SubsetTable } from '@/features/splits/components/subset-table';
import { leakageProof } from '@/features/splits/leakage';
import { formatQuantity } from '@/lib/format';
import classes from './split-card.module.css';

interface SplitCardProps {
  split: Split;
  labelName: string | null;
  labelValues: readonly string[] | null;
  fieldName: string;
}

export function SplitCard({ split, labelName, labelValues, fieldName }: SplitCardProps) {
  const titleId = `split-${split.id}`;
  const { recipe } = split;
  const { groups, warnings } = split.report;
  const proof = leakageProof({
    report: split.report,
    groupBy: recipe.group_by,
    groupCount: typeof groups === 'number' ? groups : null,
  });
  const names = labelName === null ? [fieldName] : [fieldName, labelName];
  return (
    <Panel labelledBy={titleId}>
      <div className={classes.root}>
        <Group justify="space-between" gap="sm">
          <Group gap="xs" align="baseline">
            <Title order={2} id={titleId} dir="auto">
              {split.name}@{split.number}
            </Title>
            {split.is_default && <StatusBadge tone="active">default</StatusBadge>}
            <Text size="xs" c="dimmed">
              on v{split.version} · <TimeAgo time={split.created_at} />
            </Text>
          </Group>
          <Digest value={split.digest} label={`digest of ${split.name}`} />
        </Group>
        <p className={classes.proof} data-clean={proof.isClean}>
          <span className={classes.proofIcon}>
            {proof.isClean ? <CheckIcon size={16} /> : <AlertIcon size={16} />}
          </span>
          {proof.text}
        </p>
        {Array.isArray(warnings) &&
          warnings.map((warning) => (
            <Text key={String(warning)} size="sm">
              Note: {String(warning)}.
            </Text>
          ))}
        <SubsetTable subsets={split.subsets} labelValues={labelValues} />
        <Text size="xs" c="dimmed">
          {recipeLine(split)}
        </Text>
        {split.subsets[0] !== undefined && (
          <LoaderSnippet
            label={`training lines for ${split.name}`}
            target={{
              dataset: split.dataset,
              version: split.version,
              split: split.name,
              splitNumber: split.number,
              subset: split.subsets[0].name,
              names,
            }}
          />
        )}
      </div>
    </Panel>
  );
}

function recipeLine({ recipe, unused }: Split): string {
  const strata = recipe.stratify_by ?? [];
  return [
    recipe.group_by == null ? 'no groups' : `grouped by ${recipe.group_by}`,
    strata.length === 0 ? null : `stratified by ${strata.join(', ')}`,
    recipe.filter == null ? null : `only ${recipe.filter}`,
    `seed ${String(recipe.seed ?? 0)}`,
    unused === 0 ? 'every sample is used' : `${formatQuantity(unused, 'sample')} unused`,
  ]
    .filter((part) => part !== null)
    .join(' · ');
}
