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

interface RawSchema {
  fields?: readonly { name: string; kind: string }[];
  columns?: readonly RawColumn[];
}

/** What a training loop takes from a batch: the picture, and the label if there is one. */
export function batchNames(schema: RawSchema): string[] {
  const image = schema.fields?.find(({ kind }) => kind === 'image')?.name ?? 'image';
  const label = columnsOf(schema).find(({ role }) => role === 'label')?.name;
  return label === undefined ? [image] : [image, label];
}
