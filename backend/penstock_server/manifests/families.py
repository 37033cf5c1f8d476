"""Families: the columns of a manifest that are stored, and hashed, together.

Facts, metadata (label and group each alone, so that relabelling rewrites little) and derived values are separate
Parquet files, aligned by part and row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.manifests.arrays import Column, Values, single, with_default

FACTS = "facts"
DERIVED = "derived"
METADATA = "metadata"
DERIVED_ALGORITHM = "penstock-derived-1"


def metadata_families(schema: DatasetSchema) -> dict[str, list[ColumnSchema]]:
    """Family name -> its columns; label and group stand alone, all others share one."""
    families: dict[str, list[ColumnSchema]] = {}
    for column in schema.columns:
        name = f"{METADATA}:{column.name}" if column.role else METADATA
        families.setdefault(name, []).append(column)
    return families


def hashed_families(schema: DatasetSchema) -> list[str]:
    """The families that the version's digest covers."""
    return [FACTS, *metadata_families(schema)]


def stored_tables(staged: pa.Table, schema: DatasetSchema) -> dict[str, pa.Table]:
    """Cut a staged table into one table a family, with the columns that its Parquet file has."""
    facts = {"id": staged["sample_id"], "source": staged["source"], "key": staged["key"]}
    derived = {}
    for field in schema.fields:
        for prefix in ("object", "size", "xxh3", "blake3", "media"):
            facts[f"{prefix}:{field.name}"] = staged[f"{prefix}:{field.name}"]
        for prefix in ("width", "height"):
            derived[f"{prefix}:{field.name}"] = staged[f"{prefix}:{field.name}"]
    derived["thumbnail"] = staged["thumbnail"]
    tables = {FACTS: pa.table(facts)}
    for name, columns in metadata_families(schema).items():
        tables[name] = pa.table({column.name: staged[f"meta:{column.name}"] for column in columns})
    tables[DERIVED] = pa.table(derived).replace_schema_metadata({"algorithm": DERIVED_ALGORITHM})
    return tables


def logical_table(family: str, stored: pa.Table, schema: DatasetSchema) -> pa.Table:
    """The values of a family that its row hash covers.

    Object ids and checksums are how bytes are kept, not what they are; category codes become their text. Columns are
    in order of their names, so the order of the declaration does not matter.
    """
    if family == FACTS:
        columns = {"id": stored["id"], "source": stored["source"], "key": stored["key"]}
        for name in sorted(field.name for field in schema.fields):
            for prefix in ("size", "blake3", "media"):
                columns[f"{prefix}:{name}"] = stored[f"{prefix}:{name}"]
        return pa.table(columns)
    declared = sorted(metadata_families(schema)[family], key=lambda column: column.name)
    return pa.table({column.name: logical_column(column, stored[column.name]) for column in declared})


def logical_column(column: ColumnSchema, stored: Column) -> Values:
    """A metadata column with text in place of category codes."""
    array: Any = single(stored)
    if column.kind == "category":
        named: Values = pa.DictionaryArray.from_arrays(array, pa.array(column.values or [], pa.string()))
        return named
    if column.kind == "multi_category":
        texts = pa.array(column.values or [], pa.string()).take(array.flatten())
        lengths = with_default(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int32()))
        offsets: Any = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        listed: Values = pa.ListArray.from_arrays(offsets, texts, mask=array.is_null())
        return listed
    return single(stored)


def sorted_codes(array: Values) -> Values:
    """The same sets of categories, each in code order and without repeats: one form for one value."""
    rows: list[list[int] | None] = array.to_pylist()
    canonical: Values = pa.array([None if row is None else sorted(set(row)) for row in rows], pa.list_(pa.int32()))
    return canonical
