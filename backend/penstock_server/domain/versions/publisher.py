"""Turns staged tables into a prepared version: parts, row hashes, digest and query copy; no transaction is held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _native
from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock.contract.records import format_digest
from penstock_server.db import Catalog, UnitOfWork
from penstock_server.domain.datasets.repository import DatasetRepository
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.domain.datasets.service import MAX_COVER, schema_of
from penstock_server.domain.versions.appending import ParentRows, new_rows
from penstock_server.domain.versions.repository import VersionRepository
from penstock_server.errors import InvalidInput, NotFound
from penstock_server.manifests.arrays import Column, Mask, fixed_bytes
from penstock_server.manifests.copies import copy_path
from penstock_server.manifests.families import DERIVED, FACTS
from penstock_server.manifests.parts import Part, PartStore
from penstock_server.manifests.query_copy import build_query_copy, shuffle_keys
from penstock_server.models import Project, Version
from penstock_server.settings import Settings
from penstock_server.store import StoreGateway


class PublisherParts(Protocol):
    """What the publisher takes of a process's services."""

    @property
    def settings(self) -> Settings: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def store(self) -> StoreGateway: ...


@dataclass(frozen=True, kw_only=True)
class PreparedVersion:
    """Everything of a version except its number: written to the store, not yet visible to anybody."""

    version_id: UUID
    dataset_id: UUID
    job_id: UUID | None
    parent_number: int | None
    digest: str
    sample_count: int
    byte_count: int
    schema: DatasetSchema
    parts: tuple[Part, ...]
    is_same_as_parent: bool


@dataclass(frozen=True)
class _Base:
    project: Project
    schema: DatasetSchema
    parts: tuple[Part, ...]


class VersionPublisher:
    """`VersionPublisher(services).prepare(...)`: heavy, may be repeated; call it outside of a unit of work."""

    def __init__(self, services: PublisherParts) -> None:
        self._catalog = services.catalog
        self._store = services.store
        self._data_folder: Path = services.settings.data_folder

    def prepare(
        self, dataset_id: UUID, job_id: UUID | None, staged: Iterable[pa.Table], *, parent: int | None
    ) -> PreparedVersion:
        """Write the parts of a version on top of `parent`, a version number, or None for the first one.

        Pass the dataset's `latest_version_number`. The staged tables come in plan order, sorted by (source, key), as
        `staged_schema` has them; the schema is set and its categories are appended before.
        """
        with self._catalog.unit(is_read_only=True) as unit:
            base = _base(unit, dataset_id, parent)
        source = PartStore(self._store, base.project, dataset_id=dataset_id)
        rows = ParentRows.of(base.parts, base.schema, source)
        added = [
            source.write(table, base.schema, cover=_cover(table["sample_id"], table["thumbnail"], None))
            for table in new_rows(staged, base.schema, rows, base.parts)
        ]
        is_same = parent is not None and not added and not rows.removed
        kept = [_without(source, part, rows.removed.get(ordinal)) for ordinal, part in enumerate(base.parts)]
        parts = (*kept, *added)
        if not sum(part.rows - part.deleted_count for part in parts):
            raise InvalidInput(ErrorCode.INGEST_FOLDER_EMPTY, "there is no usable sample to publish")
        version_id = uuid7()
        prepared = PreparedVersion(
            version_id=version_id,
            dataset_id=dataset_id,
            job_id=job_id,
            parent_number=parent,
            digest=digest_of(parts, base.schema, source),
            sample_count=sum(part.rows - part.deleted_count for part in parts),
            byte_count=_byte_count(parts, base.schema, source),
            schema=base.schema,
            parts=parts,
            is_same_as_parent=is_same,
        )
        if not is_same:
            build_query_copy(copy_path(self._data_folder, version_id), parts, base.schema, source=source)
        return prepared


def digest_of(parts: Sequence[Part], schema: DatasetSchema, source: PartStore) -> str:
    """The version's digest: logical rows in id order, whatever the parts."""
    ids, families = source.live_hashes(parts, schema)
    return format_digest(_native.digest_in_id_order(ids, families))


def parts_of(version: Version) -> tuple[Part, ...]:
    return tuple(Part.from_json(document) for document in version.parts)


def _base(unit: UnitOfWork, dataset_id: UUID, parent: int | None) -> _Base:
    datasets = DatasetRepository(unit)
    dataset = datasets.by_id(dataset_id)
    if dataset is None:
        raise NotFound(ErrorCode.DATASET_NOT_FOUND, f"there is no dataset {dataset_id}")
    schema = schema_of(dataset)
    if not schema.fields:
        raise InvalidInput(
            ErrorCode.DATASET_SCHEMA_INVALID, f"dataset {dataset.slug!r} has no schema yet; declare its fields first"
        )
    parts: tuple[Part, ...] = ()
    if parent is not None:
        version = VersionRepository(unit).published(dataset_id, parent)
        if version is None:
            raise NotFound(ErrorCode.VERSION_NOT_FOUND, f"dataset {dataset.slug!r} has no version {parent}")
        parts = parts_of(version)
    project = datasets.projects([dataset.project_id])[dataset.project_id]
    return _Base(project, schema, parts)


def _without(source: PartStore, part: Part, removed: Mask | None) -> Part:
    if removed is None:
        return part
    live = source.live(part) & ~removed
    cover = _cover(source.table(part, FACTS)["id"], source.table(part, DERIVED)["thumbnail"], live)
    return source.without(part, removed, cover=cover)


def _cover(ids: Column, thumbnails: Column, live: Mask | None) -> list[UUID]:
    """A few samples with a thumbnail, the first ones of the random order."""
    is_shown: Mask = thumbnails.is_valid().to_numpy().copy()
    if live is not None:
        is_shown &= live
    shown = fixed_bytes(ids, width=16)[is_shown]
    first = np.argsort(shuffle_keys(shown), kind="stable")[:MAX_COVER]
    return [UUID(bytes=shown[index].tobytes()) for index in first]


def _byte_count(parts: Sequence[Part], schema: DatasetSchema, source: PartStore) -> int:
    total = 0
    for part in parts:
        facts = source.table(part, FACTS).filter(pa.array(source.live(part)))
        total += sum(int(pc.sum(facts[f"size:{field.name}"]).as_py() or 0) for field in schema.fields)
    return total


def root_document(version: Version, *, dataset_slug: str) -> dict[str, Any]:
    """What a version is, in full: with the parts it names the catalog's row can be made again."""
    return {
        "format": 1,
        "kind": "version",
        "id": str(version.id),
        "dataset_id": str(version.dataset_id),
        "dataset": dataset_slug,
        "number": version.number,
        "digest": version.digest,
        "sample_count": version.sample_count,
        "byte_count": version.byte_count,
        "parent": version.parent_number,
        "schema": version.schema,
        "parts": version.parts,
        "job_id": None if version.job_id is None else str(version.job_id),
        "quarantined_count": version.quarantined_count,
        "created_at": version.created_at.isoformat(),
    }
