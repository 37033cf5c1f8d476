import { Group } from '@mantine/core';
import { CopyButton } from '@/components/copy-button';
import { shortDigest } from '@/lib/format';

interface DigestProps {
  value: string;
  label: string;
}

export function Digest({ value, label }: DigestProps) {
  return (
    <Group gap={2} wrap="nowrap" display="inline-flex">
      <span className="mono" title={value}>
        {shortDigest(value)}
      </span>
      <CopyButton value={value} label={`Copy ${label}`} />
    </Group>
  );
}
