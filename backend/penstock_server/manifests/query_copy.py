"""The local, typed copy of a version's manifest that lists, facets and splits are computed from.

One DuckDB file a version, built from the parts, thrown away at will. Every order is a stored rank, so a page is a range
and a cursor is a number. Names of tables and columns are ours.
"""

# ruff: noqa: S608 (every name in this SQL is ours, every value is bound)

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.manifests.arrays import Bytes, Column, Numbers, fixed_bytes
from penstock_server.manifests.columns import query_columns
from penstock_server.manifests.families import DERIVED, FACTS, metadata_families
from penstock_server.manifests.parts import Part, PartStore

COPY_FORMAT = 1
_SQL_TYPES = {
    "category": "INTEGER",
    "multi_category": "INTEGER[]",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "timestamp": "TIMESTAMP",
}


def build_query_copy(path: Path, parts: Sequence[Part], schema: DatasetSchema, *, source: PartStore) -> None:
    """Write the copy beside `path` and move it there whole: a reader never sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
        draft = Path(folder) / "copy.duckdb"
        with duckdb.connect(draft) as connection:
            connection.execute("SET threads = 2")
            connection.execute(_create_table(schema))
            for rows in _row_tables(parts, schema, source):
                connection.register("incoming", rows)
                connection.execute("INSERT INTO unsorted BY NAME SELECT * FROM incoming")
                connection.unregister("incoming")
            _finish(connection, schema)
        os.replace(draft, path)


def shuffle_keys(ids: Bytes) -> Numbers:
    """A number a sample, from its id alone: the random order of a version that survives appending."""
    # Two rounds of the splitmix64 finaliser over the halves of the id; plain integers, the same everywhere.
    halves = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)
    with np.errstate(over="ignore"):
        mixed = _mix(halves[:, 0] ^ _mix(halves[:, 1]))
    return mixed


def _mix(values: Numbers) -> Numbers:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = values ^ (values >> np.uint64(31))
    return mixed


def _create_table(schema: DatasetSchema) -> str:
    columns = ["manifest_row BIGINT", "id BLOB", "source VARCHAR", "key VARCHAR", "mix UBIGINT", "thumbnail BLOB"]
    for index in range(len(schema.fields)):
        columns += [
            f"f{index}_object BLOB", f"f{index}_size UBIGINT", f"f{index}_xxh3 UBIGINT", f"f{index}_blake3 BLOB",
            f"f{index}_media VARCHAR", f"f{index}_width INTEGER", f"f{index}_height INTEGER",
        ]  # fmt: skip
    columns += [f"c{index} {_SQL_TYPES[column.kind]}" for index, column in enumerate(schema.columns)]
    return f"CREATE TEMP TABLE unsorted ({', '.join(columns)})"


def _row_tables(parts: Sequence[Part], schema: DatasetSchema, source: PartStore) -> Iterator[pa.Table]:
    """The live rows of each part, all families side by side, under the copy's own column names."""
    first_row = 0
    for part in parts:
        live = pa.array(source.live(part))
        facts, derived = source.table(part, FACTS), source.table(part, DERIVED)
        row_numbers = np.arange(first_row, first_row + part.rows, dtype=np.int64)
        columns: dict[str, Any] = {
            "manifest_row": pa.array(row_numbers),
            "id": facts["id"].cast(pa.binary()),
            "source": facts["source"],
            "key": facts["key"],
            "mix": pa.array(shuffle_keys(fixed_bytes(facts["id"], width=16))),
            "thumbnail": derived["thumbnail"].cast(pa.binary()),
        }
        for index, field in enumerate(schema.fields):
            columns[f"f{index}_object"] = facts[f"object:{field.name}"].cast(pa.binary())
            columns[f"f{index}_blake3"] = facts[f"blake3:{field.name}"].cast(pa.binary())
            for name in ("size", "xxh3", "media"):
                columns[f"f{index}_{name}"] = facts[f"{name}:{field.name}"]
            for name in ("width", "height"):
                columns[f"f{index}_{name}"] = derived[f"{name}:{field.name}"]
        columns |= _metadata(part, schema, source)
        yield pa.table(columns).filter(live)
        first_row += part.rows


def _metadata(part: Part, schema: DatasetSchema, source: PartStore) -> dict[str, Column]:
    tables = {family: source.table(part, family) for family in metadata_families(schema)}
    places = {column.name: family for family, columns in metadata_families(schema).items() for column in columns}
    return {
        f"c{index}": _copied(column, tables[places[column.name]][column.name])
        for index, column in enumerate(schema.columns)
    }


def _copied(column: ColumnSchema, values: Column) -> Column:
    # The copy keeps UTC without a zone: DuckDB needs a time zone database for the other kind.
    return values.cast(pa.timestamp("us")) if column.kind == "timestamp" else values


def _finish(connection: duckdb.DuckDBPyConnection, schema: DatasetSchema) -> None:
    ranks = [
        "row_number() OVER (ORDER BY source, key) - 1 AS plan",
        "row_number() OVER (ORDER BY mix, id) - 1 AS random",
    ]
    for column in query_columns(schema).columns:
        if column.rank is not None and column.rank != "plan":
            # A category sorts by its code: the order in which the schema lists the values.
            order = f"{column.physical} ASC NULLS LAST, source, key"
            ranks.append(f"row_number() OVER (ORDER BY {order}) - 1 AS {column.rank}")
    for index, column_schema in enumerate(schema.columns):
        if column_schema.is_categorical:
            connection.execute(f"CREATE TABLE d{index} (code INTEGER, value VARCHAR)")
            values = column_schema.values or []
            rows = pa.table({"code": pa.array(range(len(values)), pa.int32()), "value": pa.array(values, pa.string())})
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO d{index} SELECT * FROM incoming")
            connection.unregister("incoming")
    connection.execute(f"CREATE TABLE samples AS SELECT *, {', '.join(ranks)} FROM unsorted ORDER BY source, key")
    connection.execute("CREATE UNIQUE INDEX samples_by_id ON samples (id)")
    connection.execute("CREATE TABLE about (format INTEGER, rows BIGINT, schema VARCHAR)")
    text = json.dumps(schema.model_dump(mode="json"))
    connection.execute("INSERT INTO about SELECT ?, count(*), ? FROM samples", [COPY_FORMAT, text])
