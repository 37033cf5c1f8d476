export type FilterValue = string | number | boolean | null;
/** Chosen values by column: a sample passes when each column has one of its values. */
export type Picks = Record<string, FilterValue[]>;

/** The expression that the server reads: the person's own text and every picked facet. */
export function buildFilter(text: string, picks: Picks): string | undefined {
  const clauses = Object.entries(picks)
    .filter(([, values]) => values.length > 0)
    .map(([column, values]) => pickClause(column, values));
  const own = text.trim();
  if (own !== '') clauses.unshift(clauses.length > 0 ? `(${own})` : own);
  return clauses.length > 0 ? clauses.join(' AND ') : undefined;
}

export function togglePick(picks: Picks, column: string, value: FilterValue): Picks {
  const values = picks[column] ?? [];
  const next = values.includes(value)
    ? values.filter((other) => other !== value)
    : [...values, value];
  const others = withoutColumn(picks, column);
  return next.length > 0 ? { ...others, [column]: next } : others;
}

export function withoutColumn(picks: Picks, column: string): Picks {
  return Object.fromEntries(Object.entries(picks).filter(([name]) => name !== column));
}

export function isPicked(picks: Picks, column: string, value: FilterValue): boolean {
  return picks[column]?.includes(value) ?? false;
}

function pickClause(column: string, values: FilterValue[]): string {
  const literals = values.filter((value) => value !== null).map(literal);
  const isNull = `${column} IS NULL`;
  if (literals.length === 0) return isNull;
  const among =
    literals.length === 1
      ? `${column} = ${literals[0] ?? ''}`
      : `${column} IN (${literals.join(', ')})`;
  return literals.length === values.length ? among : `(${among} OR ${isNull})`;
}

function literal(value: string | number | boolean): string {
  if (typeof value === 'string') return `'${value.replaceAll("'", "''")}'`;
  return String(value);
}
