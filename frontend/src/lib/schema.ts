/** A metadata column with every field present; the API leaves defaults out. */
export interface Column {
  name: string;
  kind: string;
  role: string | null;
  values: readonly string[] | null;
}

interface RawColumn {
  name: string;
  kind: string;
  role?: string | null;
  values?: readonly string[] | null;
}

export function columnsOf(schema: { columns?: readonly RawColumn[] } | undefined): Column[] {
  return (schema?.columns ?? []).map(({ name, kind, role = null, values = null }) => ({
    name,
    kind,
    role,
    values,
  }));
}
