import { expect, test } from 'vitest';
import { loaderSnippet } from '@/lib/snippet';

test('the training lines are four, and pin version and split', () => {
  const code = loaderSnippet({
    dataset: 'demo',
    version: 2,
    split: 'by-patient',
    splitNumber: 1,
    subset: 'train',
    names: ['image', 'tumor'],
  });
  expect(code.split('\n')).toEqual([
    'import penstock',
    'loader = penstock.Client().loader("demo@2", split="by-patient@1/train", batch_size=256, shuffle=True)',
    'for batch in loader:',
    '    image, tumor = batch["image"], batch["tumor"]',
  ]);
});

test('a validation subset is not shuffled', () => {
  expect(loaderSnippet({ dataset: 'demo', subset: 'val' })).not.toContain('shuffle');
});

test('the lines for numpy say so, and nothing else changes', () => {
  const torch = loaderSnippet({ dataset: 'demo', subset: 'train' });
  expect(loaderSnippet({ dataset: 'demo', subset: 'train', output: 'torch' })).toBe(torch);
  expect(loaderSnippet({ dataset: 'demo', subset: 'train', output: 'numpy' })).toBe(
    torch.replace('shuffle=True)', 'shuffle=True, output="numpy")'),
  );
});

test('a column that is named like a word of Python can be taken from the batch', () => {
  const code = loaderSnippet({ dataset: 'demo', subset: 'val', names: ['image', 'class'] });
  expect(code).toContain('    image, class_ = batch["image"], batch["class"]');
});
