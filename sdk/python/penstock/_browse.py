"""The catalog's samples as an Arrow table."""

from typing import Any

import pyarrow as pa

from penstock._errors import ConfigError
from penstock._models import Schema, Version
from penstock._reading import read
from penstock._transport import Transport
from penstock.contract.kinds import ColumnKind

_PAGE_LIMIT = 500
_TYPES: dict[str, pa.DataType] = {
    ColumnKind.CATEGORY: pa.string(),
    ColumnKind.MULTI_CATEGORY: pa.list_(pa.string()),
    ColumnKind.INT: pa.int64(),
    ColumnKind.FLOAT: pa.float64(),
    ColumnKind.BOOL: pa.bool_(),
    ColumnKind.TEXT: pa.string(),
    ColumnKind.TIMESTAMP: pa.string(),
}


def samples_table(
    transport: Transport, path: str, *, expression: str | None, order: str, limit: int | None
) -> pa.Table:
    """All samples of the version at `path` that `expression` is true for, up to `limit`."""
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it is at least 1")
    # The pinned number, so that a version published between two pages does not mix in.
    version = read(Version, transport.get(path))
    path = f"{path.rpartition('/')[0]}/{version.number}/samples"
    schema = version.schema or Schema()
    batches: list[pa.RecordBatch] = []
    cursor: str | None = None
    missing = limit
    while missing is None or missing > 0:
        size = _PAGE_LIMIT if missing is None else min(_PAGE_LIMIT, missing)
        page = transport.get(path, filter=expression, order=order, limit=size, cursor=cursor)
        batches.append(_record_batch(page["items"], schema))
        missing = None if missing is None else missing - len(page["items"])
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    return pa.Table.from_batches(batches, schema=_arrow_schema(schema))


def _arrow_schema(schema: Schema) -> pa.Schema:
    fixed = [("id", pa.string()), ("source", pa.string()), ("key", pa.string()), ("row", pa.int64())]
    metadata = [(column.name, _TYPES.get(column.kind, pa.string())) for column in schema.columns]
    sizes = [(f"{field.name}_bytes", pa.int64()) for field in schema.fields]
    return pa.schema([pa.field(name, kind) for name, kind in (*fixed, *metadata, *sizes)])


def _record_batch(items: list[dict[str, Any]], schema: Schema) -> pa.RecordBatch:
    rows = []
    for item in items:
        row = {name: item[name] for name in ("id", "source", "key", "row")}
        metadata = item.get("metadata") or {}
        row.update({column.name: metadata.get(column.name) for column in schema.columns})
        row.update({f"{field['name']}_bytes": field["size"] for field in item.get("fields", ())})
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=_arrow_schema(schema))
