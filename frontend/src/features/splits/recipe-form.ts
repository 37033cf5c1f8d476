import type { Recipe } from '@/features/splits/api/splits';
import { ApiError, fieldMessages } from '@/lib/problem';

export interface SubsetInput {
  name: string;
  percent: number | string;
}

export interface RecipeForm {
  name: string;
  subsets: SubsetInput[];
  /** An empty text is the explicit answer that samples are independent. */
  groupBy: string;
  stratifyBy: string[];
  filter: string;
  seed: number | string;
}

const NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
export const NAME_RULE = 'Small letters, digits, dots, dashes, underscores.';

export function toRecipe(form: RecipeForm): Recipe {
  return {
    format: 1,
    subsets: form.subsets.map(({ name, percent }) => ({
      name: name.trim(),
      ratio: Math.round(Number(percent) * 1e6) / 1e8,
    })),
    group_by: form.groupBy === '' ? null : form.groupBy,
    stratify_by: form.stratifyBy,
    filter: form.filter.trim() === '' ? null : form.filter.trim(),
    seed: Number(form.seed),
  };
}

export function percentTotal(subsets: readonly SubsetInput[]): number {
  const sum = subsets.reduce((total, { percent }) => total + (Number(percent) || 0), 0);
  return Math.round(sum * 1000) / 1000;
}

/** What is wrong with the form, by input; the same keys as the server's pointers give. */
export function checkRecipe(form: RecipeForm): Record<string, string> {
  const errors: Record<string, string> = {};
  if (!NAME.test(form.name)) errors.name = NAME_RULE;
  const seen = new Set<string>();
  form.subsets.forEach(({ name, percent }, index) => {
    const trimmed = name.trim();
    if (!NAME.test(trimmed)) errors[`subsets.${String(index)}.name`] = NAME_RULE;
    else if (seen.has(trimmed)) errors[`subsets.${String(index)}.name`] = 'Used twice.';
    seen.add(trimmed);
    if (!(Number(percent) > 0)) errors[`subsets.${String(index)}.percent`] = 'More than 0.';
  });
  const total = percentTotal(form.subsets);
  if (total > 100) errors.subsets = `The subsets add up to ${String(total)} %, more than 100 %.`;
  if (!Number.isInteger(Number(form.seed)) || Number(form.seed) < 0 || form.seed === '') {
    errors.seed = 'A whole number, 0 or more.';
  }
  return errors;
}

const INPUT_OF_FIELD: Record<string, string> = {
  name: 'name',
  'recipe.group_by': 'groupBy',
  'recipe.stratify_by': 'stratifyBy',
  'recipe.filter': 'filter',
  'recipe.seed': 'seed',
  'recipe.subsets': 'subsets',
};

/** The server's words at the input they are about. */
export function serverErrors(error: unknown): Record<string, string> {
  const errors: Record<string, string> = {};
  for (const [field, message] of Object.entries(fieldMessages(error))) {
    const ratio = /^recipe\.subsets\.(\d+)\.(name|ratio)$/.exec(field);
    const strata = field.startsWith('recipe.stratify_by') ? 'stratifyBy' : undefined;
    const input = ratio
      ? `subsets.${ratio[1] ?? '0'}.${ratio[2] === 'name' ? 'name' : 'percent'}`
      : (INPUT_OF_FIELD[field] ?? strata);
    if (input !== undefined) errors[input] = message;
  }
  if (error instanceof ApiError && error.code === 'filter.invalid') errors.filter = error.message;
  if (error instanceof ApiError && error.code === 'split.exists') errors.name = error.message;
  return errors;
}
