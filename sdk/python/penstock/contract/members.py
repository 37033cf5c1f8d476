"""The members part: which samples a subset has, and all that the loader needs to read them.

An Arrow IPC *file*, uncompressed, one record batch, fixed width and without nulls (a text label is the exception).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.contract.kinds import ColumnKind, FieldKind

FORMAT = 1
MAX_ROWS = 1_000_000
METADATA_KEY = b"penstock"

ID_COLUMN = "id"
ROW_COLUMN = "row"
OBJECT_PREFIX = "object:"
SIZE_PREFIX = "size:"
XXH3_PREFIX = "xxh3:"
VALUE_PREFIX = "column:"

# Category code, and int8 of a bool, that stand for "no value".
MISSING_CODE = -1

MEDIA_TYPE = "application/vnd.apache.arrow.file"


def object_column(field: str) -> str:
    """Column (fixed 16 bytes) with the object that holds `field`."""
    return OBJECT_PREFIX + field


def size_column(field: str) -> str:
    """Column (uint64) with the size of `field` in bytes."""
    return SIZE_PREFIX + field


def xxh3_column(field: str) -> str:
    """Column (uint64) with the XXH3-64 checksum of `field`."""
    return XXH3_PREFIX + field


def value_column(name: str) -> str:
    """Column with the values of the metadata column `name`."""
    return VALUE_PREFIX + name


def bitset_bytes(category_count: int) -> int:
    """Width of a multi-category bitset; category i is bit `i % 8` (lowest first) of byte `i // 8`."""
    return max(1, (category_count + 7) // 8)


@dataclass(frozen=True, slots=True)
class MembersField:
    """A binary field that the part describes."""

    name: str
    kind: FieldKind


@dataclass(frozen=True, slots=True)
class MembersColumn:
    """A metadata column that the part carries; `values` names the categories in code order."""

    name: str
    kind: ColumnKind
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MembersHeader:
    """What stands under the key `penstock` in the schema metadata of a part."""

    fields: tuple[MembersField, ...]
    columns: tuple[MembersColumn, ...]

    def to_json(self) -> str:
        """The canonical text of this header."""
        return json.dumps(
            {
                "format": FORMAT,
                "fields": [{"name": field.name, "kind": field.kind.value} for field in self.fields],
                "columns": [
                    {
                        "name": column.name,
                        "kind": column.kind.value,
                        "values": None if column.values is None else list(column.values),
                    }
                    for column in self.columns
                ],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a header; raises ValueError when it is of another format or not one at all."""
        try:
            document = json.loads(text)
            found_format = document["format"]
            if found_format == FORMAT:
                return cls(
                    tuple(MembersField(_text(item, "name"), FieldKind(item["kind"])) for item in document["fields"]),
                    tuple(_column(item) for item in document["columns"]),
                )
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the header of a members part cannot be read: {error!r}"
            raise ValueError(msg) from error
        msg = f"members part of format {found_format!r}; this release reads format {FORMAT}: update penstock"
        raise ValueError(msg)


def _column(item: Mapping[str, object]) -> MembersColumn:
    values = item["values"]
    if values is not None and not isinstance(values, list):
        msg = f"values of column {item['name']!r} are no list"
        raise TypeError(msg)
    return MembersColumn(
        _text(item, "name"),
        ColumnKind(_text(item, "kind")),
        None if values is None else tuple(str(value) for value in values),
    )


def _text(item: Mapping[str, object], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        msg = f"{key} is no text: {value!r}"
        raise TypeError(msg)
    return value
