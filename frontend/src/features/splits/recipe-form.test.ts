import { expect, test } from 'vitest';
import { leakageProof } from '@/features/splits/leakage';
import {
  checkRecipe,
  type RecipeForm,
  serverErrors,
  toRecipe,
} from '@/features/splits/recipe-form';
import { ApiError } from '@/lib/problem';

const form: RecipeForm = {
  name: 'by-patient',
  subsets: [
    { name: 'train', percent: 70 },
    { name: 'val', percent: 15 },
    { name: 'test', percent: 15 },
  ],
  groupBy: 'patient',
  stratifyBy: ['tumor'],
  filter: ' ',
  seed: 7,
};

test('percent become exact ratios and empty inputs become null', () => {
  expect(toRecipe({ ...form, groupBy: '' })).toEqual({
    format: 1,
    subsets: [
      { name: 'train', ratio: 0.7 },
      { name: 'val', ratio: 0.15 },
      { name: 'test', ratio: 0.15 },
    ],
    group_by: null,
    stratify_by: ['tumor'],
    filter: null,
    seed: 7,
  });
});

test('a good form has no errors, a bad one has them at their inputs', () => {
  expect(checkRecipe(form)).toEqual({});
  const errors = checkRecipe({
    ...form,
    name: 'Not A Slug',
    subsets: [
      { name: 'train', percent: 90 },
      { name: 'train', percent: 20 },
      { name: '', percent: 0 },
    ],
    seed: '',
  });
  expect(Object.keys(errors).toSorted()).toEqual([
    'name',
    'seed',
    'subsets',
    'subsets.1.name',
    'subsets.2.name',
    'subsets.2.percent',
  ]);
  expect(errors.subsets).toContain('110 %');
});

test('pointers of the server lead to the inputs of the form', () => {
  const errors = [
    ['/recipe/subsets/1/ratio', 'too small'],
    ['/recipe/group_by', 'no such column'],
    ['/recipe/stratify_by/0', 'not a category'],
    ['/name', 'taken'],
  ].map(([pointer, message]) => ({ pointer, message }));
  expect(serverErrors(new ApiError(422, { code: 'split.recipe_invalid', errors }))).toEqual({
    'subsets.1.percent': 'too small',
    groupBy: 'no such column',
    stratifyBy: 'not a category',
    name: 'taken',
  });
});

test('the proof line counts what is shared', () => {
  const proof = (report: Record<string, unknown>) =>
    leakageProof({ report, groupBy: 'patient', groupCount: 60 });
  expect(proof({ shared_groups: 0, shared_content: 0 })).toEqual({
    isClean: true,
    text: 'No leak: 0 of 60 patients and 0 equal files shared between subsets.',
  });
  expect(proof({ shared_groups: ['P1'], shared_content: 0 }).isClean).toBe(false);
  expect(proof({}).isClean).toBe(false);
});
