// Paul Tol's "bright" and "muted" schemes: told apart with every common colour blindness.
const COLORS = [
  '#4477aa',
  '#ee6677',
  '#228833',
  '#ccbb44',
  '#66ccee',
  '#aa3377',
  '#999933',
  '#882255',
  '#44aa99',
  '#cc6677',
] as const;
const OTHER = '#8b969c';

/** The colour of a class depends only on its place in the schema, so it never changes. */
export function classColor(values: readonly string[] | null | undefined, value: unknown): string {
  const index = typeof value === 'string' ? (values?.indexOf(value) ?? -1) : -1;
  return index < 0 ? OTHER : (COLORS[index % COLORS.length] ?? OTHER);
}
