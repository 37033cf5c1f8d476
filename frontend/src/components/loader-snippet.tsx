import { Group, SegmentedControl, Stack, Text } from '@mantine/core';
import { CodeBlock } from '@/components/code-block';
import { loaderSnippet, type SnippetTarget } from '@/lib/snippet';
import { useSnippetOutput } from '@/lib/use-snippet-output';

interface LoaderSnippetProps {
  target: Omit<SnippetTarget, 'output'>;
  label: string;
}

const OUTPUTS = [
  { value: 'torch', label: 'torch' },
  { value: 'numpy', label: 'numpy' },
];
const NEEDS = {
  torch: 'Tensors: needs the torch extra, penstock[torch].',
  numpy: 'Arrays: needs penstock alone.',
};

export function LoaderSnippet({ target, label }: LoaderSnippetProps) {
  const [output, setOutput] = useSnippetOutput();
  return (
    <Stack gap="xs">
      <Group gap="sm">
        <SegmentedControl
          aria-label={`Batches of the ${label}`}
          size="xs"
          data={OUTPUTS}
          value={output}
          onChange={(value) => {
            setOutput(value === 'numpy' ? 'numpy' : 'torch');
          }}
        />
        <Text size="xs" c="dimmed">
          {NEEDS[output]}
        </Text>
      </Group>
      <CodeBlock label={label} code={loaderSnippet({ ...target, output })} />
    </Stack>
  );
}
