"""Members parts: the Arrow files that loaders map into memory, and the digests over them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _native
from penstock.contract import members as layout
from penstock.contract.kinds import ColumnKind, FieldKind
from penstock.contract.records import OWN_MEMBERS, format_digest, parse_digest
from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.manifests.arrays import Column, Values, single, with_default
from penstock_server.manifests.parts import row_hashes
from penstock_server.store import StoreGateway, StoreProject


@dataclass(frozen=True)
class MembersPart:
    """Up to a million members, stored once."""

    object_id: UUID
    digest: str
    rows: int
    byte_count: int

    def to_json(self) -> dict[str, Any]:
        return {
            "object_id": str(self.object_id), "digest": self.digest, "rows": self.rows, "bytes": self.byte_count,
        }  # fmt: skip


@dataclass(frozen=True)
class MembersWriter:
    """Writes atoms of one split; all parts of a split share one header."""

    store: StoreGateway
    project: StoreProject
    dataset_id: UUID
    schema: DatasetSchema
    header: layout.MembersHeader

    def write(self, rows: pa.Table) -> list[MembersPart]:
        """The parts of one atom, from rows of the query copy in plan order."""
        table = self._table(rows)
        return [self._part(table.slice(start, layout.MAX_ROWS)) for start in range(0, table.num_rows, layout.MAX_ROWS)]

    def _part(self, table: pa.Table) -> MembersPart:
        batch = table.combine_chunks().to_batches()[0]
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        # The content names it: the same members written twice are one object.
        object_id = self.store.put_own(self.project, self.dataset_id, OWN_MEMBERS, _native.blake3(data).hex(), data)
        digest = format_digest(_native.blake3(row_hashes(pa.Table.from_batches([batch]))))
        return MembersPart(object_id, digest, batch.num_rows, len(data))

    def _table(self, rows: pa.Table) -> pa.Table:
        columns: dict[str, Values] = {
            layout.ID_COLUMN: _fixed(rows["id"], 16),
            layout.ROW_COLUMN: _plain(rows["manifest_row"], pa.int64()),
        }
        for index, field in enumerate(self.schema.fields):
            columns[layout.object_column(field.name)] = _fixed(rows[f"f{index}_object"], 16)
            columns[layout.size_column(field.name)] = _plain(rows[f"f{index}_size"], pa.uint64())
            columns[layout.xxh3_column(field.name)] = _plain(rows[f"f{index}_xxh3"], pa.uint64())
        places = {column.name: f"c{index}" for index, column in enumerate(self.schema.columns)}
        for column in self.header.columns:
            columns[layout.value_column(column.name)] = _values(column, rows[places[column.name]])
        fields = [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
        schema = pa.schema(fields, metadata={layout.METADATA_KEY: self.header.to_json().encode()})
        return pa.Table.from_arrays(list(columns.values()), schema=schema)


def member_columns(schema: DatasetSchema) -> list[tuple[int, ColumnSchema]]:
    """Columns that a members part carries: all of fixed width, and the label even if it is text."""
    return [
        (index, column)
        for index, column in enumerate(schema.columns)
        if column.kind not in ("text", "timestamp") or (column.kind == "text" and column.role == "label")
    ]


def header_for(schema: DatasetSchema, rows: pa.Table) -> layout.MembersHeader:
    """The header of all parts of a split over these rows."""
    columns = []
    for index, column in member_columns(schema):
        kind = ColumnKind(column.kind)
        if kind is ColumnKind.INT and rows[f"c{index}"].null_count:
            # There is no integer that means "missing": such a column travels as floats, with NaN.
            kind = ColumnKind.FLOAT
        values = None if column.values is None else tuple(column.values)
        columns.append(layout.MembersColumn(column.name, kind, values))
    fields = tuple(layout.MembersField(field.name, FieldKind(field.kind)) for field in schema.fields)
    return layout.MembersHeader(fields, tuple(columns))


def subset_digest(parts: Sequence[MembersPart]) -> str:
    """Over the parts' digests in order."""
    return format_digest(_native.blake3(b"".join(parse_digest(part.digest) for part in parts)))


def _fixed(column: Column, width: int) -> Values:
    return single(column).cast(pa.binary(width))


def _plain(column: Column, kind: pa.DataType) -> Values:
    return single(column).cast(kind)


def _values(column: layout.MembersColumn, stored: Column) -> Values:
    array = single(stored)
    if column.kind is ColumnKind.CATEGORY:
        return with_default(array.cast(pa.int32()), layout.MISSING_CODE)
    if column.kind is ColumnKind.BOOL:
        return with_default(array.cast(pa.int8()), layout.MISSING_CODE)
    if column.kind is ColumnKind.INT:
        return array.cast(pa.int64())
    if column.kind is ColumnKind.FLOAT:
        return with_default(array.cast(pa.float64()), float("nan"))
    if column.kind is ColumnKind.MULTI_CATEGORY:
        return _bitset(array, len(column.values or ()))
    return with_default(array.cast(pa.large_string()), "")


def _bitset(array: Any, category_count: int) -> Values:
    width = layout.bitset_bytes(category_count)
    bits = np.zeros((len(array), width * 8), dtype=bool)
    bits[pc.list_parent_indices(array).to_numpy(), array.flatten().to_numpy()] = True
    packed = np.packbits(bits, axis=1, bitorder="little")
    buffer = pa.py_buffer(packed.tobytes())
    packed_array: Values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(array), [None, buffer])
    return packed_array
