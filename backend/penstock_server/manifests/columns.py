"""Names that people use in filters and orders -> columns of the query copy, whose names are ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock_server.domain.datasets.schemas import ColumnKind, ColumnSchema, DatasetSchema

RankName = str


@dataclass(frozen=True)
class QueryColumn:
    """A column that can be filtered; `rank` is the stored sort position, None where there is no order."""

    name: str
    kind: ColumnKind
    physical: str
    rank: RankName | None
    values: tuple[str, ...] | None = None
    dictionary: str | None = None

    @property
    def codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values or ())}


@dataclass(frozen=True)
class QueryColumns:
    """All filterable columns of one version."""

    columns: tuple[QueryColumn, ...]

    def get(self, name: str) -> QueryColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def query_columns(schema: DatasetSchema) -> QueryColumns:
    """Metadata columns first: one called `width` hides the built-in of that name."""
    columns = [_metadata_column(index, column) for index, column in enumerate(schema.columns)]
    taken = {column.name for column in columns}
    columns += [column for column in _built_in(schema) if column.name not in taken]
    return QueryColumns(tuple(columns))


def picture_index(schema: DatasetSchema) -> int | None:
    """The field whose size `width` and `height` mean: the first picture."""
    kinds: tuple[Literal["image", "mask"], ...] = ("image", "mask")
    for kind in kinds:
        for index, field in enumerate(schema.fields):
            if field.kind == kind:
                return index
    return None


def _metadata_column(index: int, column: ColumnSchema) -> QueryColumn:
    return QueryColumn(
        name=column.name,
        kind=column.kind,
        physical=f"c{index}",
        rank=None if column.kind == "multi_category" else f"r{index}",
        values=None if column.values is None else tuple(column.values),
        dictionary=f"d{index}" if column.is_categorical else None,
    )


def _built_in(schema: DatasetSchema) -> list[QueryColumn]:
    columns = [
        QueryColumn(name="source", kind="text", physical="source", rank="plan"),
        QueryColumn(name="key", kind="text", physical="key", rank="key_rank"),
    ]
    picture = picture_index(schema)
    if picture is not None:
        columns += [
            QueryColumn(name="width", kind="int", physical=f"f{picture}_width", rank="width_rank"),
            QueryColumn(name="height", kind="int", physical=f"f{picture}_height", rank="height_rank"),
        ]
    return columns
