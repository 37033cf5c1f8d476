"""What a dataset looks like from outside: its typed schema and the bodies of its routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from penstock.contract.names import COLUMN_PATTERN, SLUG_PATTERN

FieldKind = Literal["image", "mask", "bytes", "text", "array"]
ColumnKind = Literal["category", "multi_category", "int", "float", "bool", "text", "timestamp"]
ColumnRole = Literal["label", "group"]

# These are built-in columns of the filter language or keys of a batch.
RESERVED_NAMES = frozenset({"id", "ids", "valid", "source", "key", "row"})
MAX_COLUMNS = 500
MAX_FIELDS = 16
MAX_CATEGORY_VALUES = 100_000


def _without_control_characters(text: str) -> str:
    # PostgreSQL text refuses NUL, and a lone surrogate has no UTF-8 form.
    if "\x00" in text or any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError("must be valid text without NUL characters")
    return text


PlainText = Annotated[str, AfterValidator(_without_control_characters)]


class FieldSchema(BaseModel):
    """One named binary part of a sample."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=COLUMN_PATTERN)]
    kind: FieldKind


class ColumnSchema(BaseModel):
    """One typed metadata column; `values` is the append-only list whose index is the class index."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=COLUMN_PATTERN)]
    kind: ColumnKind
    role: ColumnRole | None = None
    values: Annotated[list[PlainText], Field(max_length=MAX_CATEGORY_VALUES)] | None = None

    @property
    def is_categorical(self) -> bool:
        return self.kind in ("category", "multi_category")

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if self.is_categorical:
            self.values = self.values or []
            if len(set(self.values)) != len(self.values):
                raise ValueError(f"column {self.name!r} lists a category twice")
        elif self.values is not None:
            raise ValueError(f"column {self.name!r} is of kind {self.kind}, only categories have values")
        return self


class DatasetSchema(BaseModel):
    """The declared fields and columns of a dataset, in order."""

    model_config = ConfigDict(extra="forbid")

    fields: Annotated[list[FieldSchema], Field(max_length=MAX_FIELDS)] = []
    columns: Annotated[list[ColumnSchema], Field(max_length=MAX_COLUMNS)] = []

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        seen: set[str] = set()
        for name in [*(field.name for field in self.fields), *(column.name for column in self.columns)]:
            if name in RESERVED_NAMES:
                raise ValueError(f"{name!r} is a reserved name; choose another one")
            if name in seen:
                raise ValueError(f"{name!r} is declared twice; fields and columns share one set of names")
            seen.add(name)
        for role in ("label", "group"):
            if sum(column.role == role for column in self.columns) > 1:
                raise ValueError(f"only one column may have the role {role!r}")
        return self

    def column(self, name: str) -> ColumnSchema | None:
        return next((column for column in self.columns if column.name == name), None)

    def field(self, name: str) -> FieldSchema | None:
        return next((field for field in self.fields if field.name == name), None)

    @property
    def label(self) -> ColumnSchema | None:
        return next((column for column in self.columns if column.role == "label"), None)

    @property
    def group(self) -> ColumnSchema | None:
        return next((column for column in self.columns if column.role == "group"), None)


class DatasetCreate(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: Annotated[str, Field(pattern=SLUG_PATTERN)]
    description: Annotated[PlainText, Field(max_length=10_000)] = ""
    project: Annotated[str, Field(pattern=SLUG_PATTERN)] = "default"
    dataset_schema: DatasetSchema | None = Field(default=None, alias="schema")


class DatasetUpdate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    description: Annotated[PlainText, Field(max_length=10_000)]


class DatasetRead(BaseModel):
    """A dataset as the API returns it."""

    model_config = ConfigDict(populate_by_name=True)

    id: UUID
    slug: str
    project: str
    description: str
    dataset_schema: DatasetSchema = Field(alias="schema")
    latest_version: int | None
    default_split: str | None
    sample_count: int
    byte_count: int
    created_at: datetime
    updated_at: datetime
    cover_thumbnails: list[str]
