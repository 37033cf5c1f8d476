"""Samples as the API returns them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel

from penstock_server.domain.datasets.schemas import FieldKind

MetadataValue = str | bool | int | float | datetime | list[str] | None


class SampleField(BaseModel):
    """One binary field of a sample."""

    name: str
    kind: FieldKind
    media_type: str
    size: int
    width: int | None
    height: int | None


class SampleFieldDetail(SampleField):
    """With what is needed to find and check the bytes; xxh3 is hex, for it does not fit into a JSON number."""

    object_id: UUID
    xxh3: str
    blake3: str
    url: str


class SampleRead(BaseModel):
    """One training item in a list."""

    id: UUID
    source: str
    key: str
    row: int
    label: str | None
    metadata: dict[str, MetadataValue]
    fields: list[SampleField]
    thumbnail_url: str | None


class SampleDetail(SampleRead):
    """One training item alone."""

    fields: list[SampleFieldDetail]  # type: ignore[assignment]  # the same list with more in each item


class FacetValue(BaseModel):
    value: str | bool | int | None
    count: int


class FacetRead(BaseModel):
    """Counts a value, or the range of a number or a time."""

    column: str
    values: list[FacetValue] | None
    min: float | int | str | None
    max: float | int | str | None


class FacetsRead(BaseModel):
    total: int
    facets: list[FacetRead]


@dataclass(frozen=True)
class FieldBytes:
    """Bytes with how they may be shown."""

    data: bytes
    media_type: str
    file_name: str
    checksum: str
