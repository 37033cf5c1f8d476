"""Staged rows on top of a parent's rows: which are new, which replace one, which change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contract.codes import ErrorCode
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.errors import InvalidInput
from penstock_server.manifests.arrays import Bytes, Mask, single
from penstock_server.manifests.families import FACTS, hashed_families, logical_table, sorted_codes, stored_tables
from penstock_server.manifests.parts import MAX_PART_ROWS, Part, PartStore, row_hashes
from penstock_server.manifests.staged import staged_schema

_ROW = 16


@dataclass
class ParentRows:
    """Where every live row of the parent is, by the hash of (source, key), and what it holds."""

    places: dict[bytes, tuple[int, int]]
    contents: list[bytes]
    removed: dict[int, Mask]

    @classmethod
    def of(cls, parts: Sequence[Part], schema: DatasetSchema, source: PartStore) -> ParentRows:
        places: dict[bytes, tuple[int, int]] = {}
        contents = []
        for ordinal, part in enumerate(parts):
            keys = _sliced(_key_hashes(source.table(part, FACTS)))
            for row in np.flatnonzero(source.live(part)):
                places[keys[row]] = (ordinal, int(row))
            contents.append(_joined([source.hashes(part, name) for name in hashed_families(schema)]))
        return cls(places, contents, {})

    def is_unchanged(self, key: bytes, content: bytes) -> bool:
        place = self.places.get(key)
        if place is None:
            return False
        ordinal, row = place
        width = len(content)
        return self.contents[ordinal][row * width : (row + 1) * width] == content

    def replace(self, key: bytes, parts: Sequence[Part]) -> None:
        place = self.places.get(key)
        if place is not None:
            ordinal, row = place
            mask = self.removed.setdefault(ordinal, np.zeros(parts[ordinal].rows, dtype=bool))
            mask[row] = True


def new_rows(
    staged: Iterable[pa.Table], schema: DatasetSchema, parent: ParentRows, parts: Sequence[Part]
) -> Iterator[pa.Table]:
    """Staged rows that the parent has not, in tables of at most MAX_PART_ROWS; marks the rows they replace."""
    waiting: list[pa.Table] = []
    seen: set[bytes] = set()
    for table in staged:
        checked = _checked(table, schema)
        keep = _is_new(checked, schema, parent, parts, seen)
        kept = checked.filter(pa.array(keep, pa.bool_()))
        if kept.num_rows:
            waiting.append(kept)
        while sum(item.num_rows for item in waiting) >= MAX_PART_ROWS:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, MAX_PART_ROWS).combine_chunks()
            rest = whole.slice(MAX_PART_ROWS)
            waiting = [rest] if rest.num_rows else []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _is_new(
    table: pa.Table, schema: DatasetSchema, parent: ParentRows, parts: Sequence[Part], seen: set[bytes]
) -> list[bool]:
    stored = stored_tables(table, schema)
    keys = _sliced(_key_hashes(stored[FACTS]))
    hashes = [_as_rows(row_hashes(logical_table(name, stored[name], schema))) for name in hashed_families(schema)]
    content = _joined(hashes)
    width = _ROW * len(hashes)
    keep = []
    for row, key in enumerate(keys):
        if key in seen:
            source, name = table["source"][row].as_py(), table["key"][row].as_py()
            raise _mismatch(f"sample {name!r} of source {source!r} is there twice; keys must be unique in a source")
        seen.add(key)
        is_same = parent.is_unchanged(key, content[row * width : (row + 1) * width])
        if not is_same:
            parent.replace(key, parts)
        keep.append(not is_same)
    return keep


def _checked(table: pa.Table, schema: DatasetSchema) -> pa.Table:
    wanted = staged_schema(schema)
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise _mismatch(f"a staged table lacks the columns {', '.join(missing)}")
    try:
        checked = table.select(wanted.names).cast(wanted).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise _mismatch(f"a staged table has columns of another type: {error}") from error
    for field in wanted:
        if not field.nullable and checked[field.name].null_count:
            raise _mismatch(f"a staged table has samples without {field.name!r}; every declared field is required")
    return _canonical(checked, schema)


def _canonical(table: pa.Table, schema: DatasetSchema) -> pa.Table:
    """Category codes inside the schema's list; sets of categories in one form."""
    for column in schema.columns:
        if not column.is_categorical:
            continue
        name = f"meta:{column.name}"
        codes: Any = single(table[name])
        if column.kind == "multi_category":
            codes = sorted_codes(codes)
            table = table.set_column(table.column_names.index(name), name, codes)
            codes = codes.flatten()
        low, high = pc.min(codes).as_py(), pc.max(codes).as_py()
        if low is not None and (low < 0 or high >= len(column.values or [])):
            raise _mismatch(f"column {column.name!r} holds a category code that the schema does not have")
    return table


def _key_hashes(facts: pa.Table) -> bytes:
    return row_hashes(facts.select(["source", "key"]))


def _sliced(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + _ROW] for start in range(0, len(hashes), _ROW)]


def _as_rows(hashes: bytes) -> Bytes:
    return np.frombuffer(hashes, dtype=np.uint8).reshape(-1, _ROW)


def _joined(hashes: Sequence[Bytes]) -> bytes:
    return np.concatenate(hashes, axis=1).tobytes() if hashes else b""


def _mismatch(detail: str) -> InvalidInput:
    return InvalidInput(ErrorCode.INGEST_SCHEMA_MISMATCH, detail)
