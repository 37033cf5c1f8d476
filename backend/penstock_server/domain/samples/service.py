"""Browsing the samples of a version: pages, jumps, facets, and the bytes themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock.contract.records import SAMPLES_TABLE
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.domain.pages import Cursor, KeyValue, Page, PageRequest, decode_cursor, encode_cursor
from penstock_server.domain.samples.schemas import (
    FacetRead,
    FacetsRead,
    FacetValue,
    FieldBytes,
    MetadataValue,
    SampleDetail,
    SampleField,
    SampleFieldDetail,
    SampleRead,
)
from penstock_server.domain.versions.service import VersionPlace, VersionService
from penstock_server.errors import FieldProblem, InvalidInput, NotFound
from penstock_server.events import EventBus
from penstock_server.manifests.copies import QueryCopies
from penstock_server.manifests.queries import Place, QueryCopy
from penstock_server.policy import Action, Actor
from penstock_server.store import ObjectMissing, StoreGateway

MAX_FACETS = 50
# What a browser may show in place; everything else travels as opaque bytes.
_SAFE_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff"})


class SampleService:
    """What a version holds; `SampleService(unit, store, bus, copies)`."""

    def __init__(self, unit: UnitOfWork, store: StoreGateway, bus: EventBus, copies: QueryCopies) -> None:
        self._unit = unit
        self._store = store
        self._copies = copies
        self._versions = VersionService(unit, store, bus)

    def open(self, reference: str, number: str, *, actor: Actor) -> tuple[VersionPlace, QueryCopy]:
        """The version and its query copy; the catalog's connection is given back before the query runs."""
        place = self._versions.find(reference, number, actor=actor, action=Action.SAMPLE_READ)
        source = self._versions.parts(place)
        self._unit.close()
        return place, self._copies.open(place.manifest, source)

    def page(
        self,
        reference: str,
        number: str,
        request: PageRequest,
        *,
        actor: Actor,
        filter_text: str | None = None,
        order_name: str = "random",
        seed: int = 0,
        offset: int | None = None,
    ) -> Page[SampleRead]:
        """Samples of a filter in an order, beside a cursor or from an offset, and how many there are in all."""
        if offset is not None and request.cursor is not None:
            message = "offset and cursor exclude each other; send one of them"
            raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/offset", message)])
        place, copy = self.open(reference, number, actor=actor)
        where, order = copy.filter(filter_text), copy.order(order_name, seed=seed)
        scope = f"samples:{actor.user_id}:{place.version.id}:{order_name}:{seed}:{filter_text or ''}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        is_backward = cursor is not None and cursor.is_backward
        rows = copy.page(
            where,
            order,
            limit=request.limit + 1,
            after=None if cursor is None else _place(cursor.key),
            is_backward=is_backward,
            offset=offset or 0,
        )
        has_more = len(rows) > request.limit
        rows = rows[: request.limit]
        if is_backward:
            rows.reverse()
        has_previous = has_more if is_backward else (cursor is not None or bool(offset))
        keys: list[tuple[KeyValue, ...]] = [(str(row["order_key"]), row["manifest_row"]) for row in rows]
        next_cursor = encode_cursor(scope, Cursor(keys[-1])) if keys and (has_more or is_backward) else None
        prev_cursor = encode_cursor(scope, Cursor(keys[0], is_backward=True)) if keys and has_previous else None
        return Page[SampleRead](
            items=[_read(row, place) for row in rows],
            next_cursor=next_cursor,
            prev_cursor=prev_cursor,
            total=copy.count(where),
        )

    def facets(
        self, reference: str, number: str, *, columns: Sequence[str], filter_text: str | None, actor: Actor
    ) -> FacetsRead:
        """Counts and ranges of columns among the samples of a filter."""
        if len(columns) > MAX_FACETS:
            message = f"at most {MAX_FACETS} columns at once"
            raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/columns", message)])
        _, copy = self.open(reference, number, actor=actor)
        where = copy.filter(filter_text)
        facets = [copy.facet(name, where) for name in columns]
        return FacetsRead(
            total=copy.count(where),
            facets=[
                FacetRead(
                    column=facet.column,
                    values=None
                    if facet.values is None
                    else [FacetValue(value=value, count=count) for value, count in facet.values],
                    min=_finite(facet.minimum),
                    max=_finite(facet.maximum),
                )
                for facet in facets
            ],
        )

    def get(self, reference: str, number: str, sample_id: UUID, *, actor: Actor) -> SampleDetail:
        """One sample with what is needed to find and check its bytes."""
        place, row = self._row(reference, number, sample_id, actor=actor)
        listed = _read(row, place)
        details = []
        for index, field in enumerate(listed.fields):
            details.append(
                SampleFieldDetail(
                    **field.model_dump(),
                    object_id=UUID(bytes=row[f"f{index}_object"]),
                    xxh3=f"{row[f'f{index}_xxh3']:016x}",
                    blake3=row[f"f{index}_blake3"].hex(),
                    url=f"{_base(place)}/{sample_id}/fields/{field.name}",
                )
            )
        return SampleDetail(**{**listed.model_dump(), "fields": details})

    def thumbnail(self, reference: str, number: str, sample_id: UUID, *, actor: Actor) -> bytes:
        """The sample's small picture (WebP)."""
        place, row = self._row(reference, number, sample_id, actor=actor)
        missing = f"sample {sample_id} has no thumbnail"
        if row["thumbnail"] is None:
            raise NotFound(ErrorCode.SAMPLE_NOT_FOUND, missing)
        dataset = place.place.dataset
        try:
            return self._store.get_own(place.place.project, dataset.id, UUID(bytes=row["thumbnail"]))
        except ObjectMissing:
            raise NotFound(ErrorCode.SAMPLE_NOT_FOUND, missing) from None

    def field(self, reference: str, number: str, sample_id: UUID, name: str, *, actor: Actor) -> FieldBytes:
        """The bytes of one field as they were ingested."""
        place, row = self._row(reference, number, sample_id, actor=actor)
        names = [field.name for field in place.schema.fields]
        if name not in names:
            raise NotFound(
                ErrorCode.SAMPLE_FIELD_NOT_FOUND, f"samples have no field {name!r}; they have {', '.join(names)}"
            )
        index = names.index(name)
        data = self._store.read_field(
            place.place.project,
            place.place.dataset.id,
            UUID(bytes=row[f"f{index}_object"]),
            table=SAMPLES_TABLE,
            field=name,
        )
        media = row[f"f{index}_media"]
        return FieldBytes(
            data=data,
            media_type=media if media in _SAFE_MEDIA else "application/octet-stream",
            file_name=f"{sample_id}-{name}",
            checksum=row[f"f{index}_blake3"].hex(),
        )

    def _row(
        self, reference: str, number: str, sample_id: UUID, *, actor: Actor
    ) -> tuple[VersionPlace, dict[str, Any]]:
        place, copy = self.open(reference, number, actor=actor)
        row = copy.sample(sample_id)
        if row is None:
            raise NotFound(
                ErrorCode.SAMPLE_NOT_FOUND,
                f"version {place.version.number} of {place.place.dataset.slug!r} has no sample {sample_id}",
                context={"sample": str(sample_id), "version": place.version.number},
            )
        return place, row


def _place(key: Sequence[object]) -> Place:
    # Keys of other seeds are 64-bit and travel as text; anything else is no cursor of ours.
    if len(key) == 2 and isinstance(key[0], str) and key[0].isdecimal() and len(key[0]) <= 20:
        row = key[1]
        if isinstance(row, int) and 0 <= row < 1 << 62:
            return Place(int(key[0]), row)
    message = "this cursor is damaged; start again without a cursor"
    raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/cursor", message)])


def _base(place: VersionPlace) -> str:
    return f"/api/v1/datasets/{place.place.dataset.id}/versions/{place.version.number}/samples"


def _read(row: Mapping[str, Any], place: VersionPlace) -> SampleRead:
    schema = place.schema
    sample_id = UUID(bytes=row["id"])
    metadata = {column.name: _value(column, row[f"c{index}"]) for index, column in enumerate(schema.columns)}
    label = None if schema.label is None else metadata[schema.label.name]
    return SampleRead(
        id=sample_id,
        source=row["source"],
        key=row["key"],
        row=row["manifest_row"],
        label=_shown(label),
        metadata=metadata,
        fields=_fields(row, schema),
        thumbnail_url=None if row["thumbnail"] is None else f"{_base(place)}/{sample_id}/thumbnail",
    )


def _fields(row: Mapping[str, Any], schema: DatasetSchema) -> list[SampleField]:
    return [
        SampleField(
            name=field.name,
            kind=field.kind,
            media_type=row[f"f{index}_media"],
            size=row[f"f{index}_size"],
            width=row[f"f{index}_width"],
            height=row[f"f{index}_height"],
        )
        for index, field in enumerate(schema.fields)
    ]


def _value(column: ColumnSchema, stored: Any) -> MetadataValue:
    value: MetadataValue = stored
    if stored is not None and column.kind == "category":
        value = (column.values or [])[stored]
    elif stored is not None and column.kind == "multi_category":
        value = [(column.values or [])[code] for code in stored]
    elif isinstance(stored, datetime):
        value = stored.replace(tzinfo=UTC)
    elif isinstance(stored, float) and not math.isfinite(stored):
        # JSON has no such numbers.
        value = None
    return value


def _shown(label: MetadataValue) -> str | None:
    if label is None:
        return None
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, list):
        return ", ".join(label)
    return label.isoformat() if isinstance(label, datetime) else str(label)


def _finite(value: float | int | str | None) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
