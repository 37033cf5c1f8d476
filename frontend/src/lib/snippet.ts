export interface SnippetTarget {
  dataset: string;
  version?: number;
  split?: string;
  splitNumber?: number;
  subset: string;
  batchSize?: number;
  /** Fields and columns of the batch to show in the loop. */
  names?: readonly string[];
}

/** The four lines that a training script needs; pinned, so that they mean the same next year. */
export function loaderSnippet(target: SnippetTarget): string {
  const { version, split, splitNumber, subset, batchSize = 256, names = ['image'] } = target;
  const dataset = version === undefined ? target.dataset : `${target.dataset}@${String(version)}`;
  const number = splitNumber === undefined ? '' : `@${String(splitNumber)}`;
  const path = split === undefined ? subset : `${split}${number}/${subset}`;
  const values = names.map((name) => `batch["${name}"]`).join(', ');
  const shuffle = subset.includes('train') ? ', shuffle=True' : '';
  return [
    'import penstock',
    `loader = penstock.Client().loader("${dataset}", split="${path}", batch_size=${String(batchSize)}${shuffle})`,
    'for batch in loader:',
    `    ${names.join(', ')} = ${values}`,
  ].join('\n');
}
