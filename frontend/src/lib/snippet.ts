export type SnippetOutput = 'torch' | 'numpy';

export interface SnippetTarget {
  dataset: string;
  version?: number;
  split?: string;
  splitNumber?: number;
  subset: string;
  batchSize?: number;
  /** Fields and columns of the batch to show in the loop. */
  names?: readonly string[];
  output?: SnippetOutput;
}

// Names that fields and columns may have and that Python keeps for itself.
const KEYWORDS = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except ' +
    'finally for from global if import in is lambda nonlocal not or pass raise return try while ' +
    'with yield'
  ).split(' '),
);

/** The four lines that a training script needs; pinned, so that they mean the same next year. */
export function loaderSnippet(target: SnippetTarget): string {
  const { version, split, splitNumber, subset, batchSize = 256, names = ['image'] } = target;
  const dataset = version === undefined ? target.dataset : `${target.dataset}@${String(version)}`;
  const number = splitNumber === undefined ? '' : `@${String(splitNumber)}`;
  const path = split === undefined ? subset : `${split}${number}/${subset}`;
  const variables = names.map((name) => (KEYWORDS.has(name) ? `${name}_` : name)).join(', ');
  const values = names.map((name) => `batch["${name}"]`).join(', ');
  const options = [
    `"${dataset}"`,
    `split="${path}"`,
    `batch_size=${String(batchSize)}`,
    ...(subset.includes('train') ? ['shuffle=True'] : []),
    ...(target.output === 'numpy' ? ['output="numpy"'] : []),
  ];
  return [
    'import penstock',
    `loader = penstock.Client().loader(${options.join(', ')})`,
    'for batch in loader:',
    `    ${variables} = ${values}`,
  ].join('\n');
}
