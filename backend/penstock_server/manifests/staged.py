"""The Arrow table that an ingest shard leaves behind: one row a sample, in plan order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock_server.domain.datasets.schemas import ColumnKind, DatasetSchema

STAGED_FORMAT = 1
ID = pa.binary(16)
HASH = pa.binary(32)

_COLUMN_TYPES: dict[ColumnKind, pa.DataType] = {
    "category": pa.int32(),
    "multi_category": pa.list_(pa.int32()),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def column_type(kind: ColumnKind) -> pa.DataType:
    """The stored type of a metadata column; categories are codes into the schema's values."""
    return _COLUMN_TYPES[kind]


def staged_schema(schema: DatasetSchema) -> pa.Schema:
    """The columns of a staged table for this dataset schema.

    Every declared field is required; metadata, picture sizes and the thumbnail may be null.
    """
    columns: list[pa.Field[Any]] = [
        pa.field("sample_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
    ]
    for field in schema.fields:
        columns += [
            pa.field(f"object:{field.name}", ID, nullable=False),
            pa.field(f"size:{field.name}", pa.uint64(), nullable=False),
            pa.field(f"xxh3:{field.name}", pa.uint64(), nullable=False),
            pa.field(f"blake3:{field.name}", HASH, nullable=False),
            pa.field(f"media:{field.name}", pa.string(), nullable=False),
            pa.field(f"width:{field.name}", pa.int32()),
            pa.field(f"height:{field.name}", pa.int32()),
        ]
    columns += [pa.field(f"meta:{column.name}", column_type(column.kind)) for column in schema.columns]
    columns.append(pa.field("thumbnail", ID))
    return pa.schema(columns)
