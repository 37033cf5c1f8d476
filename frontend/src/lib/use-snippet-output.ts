import { useLocalStorage } from '@mantine/hooks';
import type { SnippetOutput } from '@/lib/snippet';

/** What the batches of the shown lines hold; one choice for all of them, kept in this browser. */
export function useSnippetOutput(): [SnippetOutput, (output: SnippetOutput) => void] {
  const [output, setOutput] = useLocalStorage<SnippetOutput>({
    key: 'penstock-snippet-output',
    defaultValue: 'torch',
    getInitialValueInEffect: false,
    serialize: (value) => value,
    deserialize: (text) => (text === 'numpy' ? 'numpy' : 'torch'),
  });
  return [output, setOutput];
}
