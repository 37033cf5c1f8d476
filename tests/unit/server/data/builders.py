"""Small staged tables and whole datasets for tests, built through the public services."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock import _native
from penstock.contract.ids import content_hash, object_id, own_object_id, sample_id, uuid7
from penstock_server.db import Catalog
from penstock_server.domain.datasets.schemas import DatasetCreate, DatasetSchema
from penstock_server.domain.datasets.service import DatasetService
from penstock_server.domain.versions.publisher import PreparedVersion, VersionPublisher
from penstock_server.domain.versions.schemas import VersionRead
from penstock_server.domain.versions.service import VersionService
from penstock_server.events import EventBus, open_bus
from penstock_server.manifests.staged import staged_schema
from penstock_server.models import Base, Project, User
from penstock_server.policy import Actor
from penstock_server.settings import Settings
from penstock_server.store import StoreGateway

SCHEMA = DatasetSchema.model_validate(
    {
        "fields": [{"name": "image", "kind": "image"}, {"name": "note", "kind": "bytes"}],
        "columns": [
            {"name": "tumor", "kind": "category", "role": "label", "values": ["no", "yes"]},
            {"name": "patient", "kind": "category", "role": "group", "values": [f"p{n:02}" for n in range(12)]},
            {"name": "tags", "kind": "multi_category", "values": ["blur", "ink", "fold"]},
            {"name": "age", "kind": "int"},
            {"name": "score", "kind": "float"},
            {"name": "checked", "kind": "bool"},
            {"name": "remark", "kind": "text"},
            {"name": "taken", "kind": "timestamp"},
        ],
    }
)


@dataclass
class Parts:
    """The parts of a process that data services need; has the shape of `composition.Services`."""

    settings: Settings
    catalog: Catalog
    store: StoreGateway
    bus: EventBus

    def close(self) -> None:
        self.store.close()
        self.bus.close()
        self.catalog.close()


def open_parts(settings: Settings) -> Parts:
    """Parts with an empty catalog that has the default project and a user."""
    catalog = Catalog(settings.catalog.url)
    Base.metadata.create_all(catalog.engine)
    parts = Parts(
        settings, catalog, StoreGateway(settings.store, settings.data_folder), open_bus(settings.events, catalog)
    )
    with catalog.unit() as unit:
        project_id = uuid7()
        now = unit.now()
        unit.session.add(
            Project(id=project_id, slug="default", name="Default", keyspace=f"ps_{project_id.hex}", created_at=now)
        )
        unit.session.add(User(id=uuid7(), name="anna", role="admin", created_at=now))
    return parts


def embedded_settings(folder: Path) -> Settings:
    return Settings(data_folder=folder / "data", state_folder=folder / "state")


def actor_of(parts: Parts) -> Actor:
    with parts.catalog.unit(is_read_only=True) as unit:
        user = unit.session.query(User).one()
        return Actor(user.id, "admin")


@dataclass(frozen=True)
class Item:
    """One sample to stage."""

    source: str
    key: str
    image: bytes
    note: bytes = b"n"
    tumor: int | None = None
    patient: int | None = None
    tags: Sequence[int] | None = None
    age: int | None = None
    score: float | None = None
    checked: bool | None = None
    remark: str | None = None
    taken: Any = None


def items(count: int, *, patients: int = 12) -> list[Item]:
    """Different samples, sorted by (source, key); deterministic."""
    made = []
    for number in range(count):
        patient = number * patients // count
        made.append(
            Item(
                source=f"slide{patient:02}",
                key=f"{number:05}.png",
                image=b"picture" + number.to_bytes(4, "big") * 5,
                tumor=int(number % 4 == 0),
                patient=patient,
                tags=[number % 3] if number % 5 else None,
                age=None if number % 7 == 0 else 20 + number % 60,
                score=None if number % 11 == 0 else number / 8,
                checked=None if number % 3 == 0 else number % 2 == 0,
                remark=f"remark {number % 9}",
                taken=None if number % 2 else 1_700_000_000_000_000 + number,
            )
        )
    return made


def staged(dataset_id: UUID, rows: Iterable[Item], schema: DatasetSchema = SCHEMA) -> pa.Table:
    """The staged table that a shard would leave for these samples."""
    documents = []
    for item in rows:
        fields = {"image": item.image, "note": item.note}
        hashes = {name: _native.blake3(data) for name, data in fields.items()}
        content = content_hash(hashes)
        sample = sample_id(dataset_id, item.source, item.key, content)
        stored = object_id(dataset_id, sorted(fields), content)
        document: dict[str, Any] = {"sample_id": sample.bytes, "source": item.source, "key": item.key}
        for name, data in fields.items():
            document |= {
                f"object:{name}": stored.bytes,
                f"size:{name}": len(data),
                f"xxh3:{name}": _native.xxh3_64(data),
                f"blake3:{name}": hashes[name],
                f"media:{name}": "image/png" if name == "image" else "text/html",
                f"width:{name}": 96 if name == "image" else None,
                f"height:{name}": 64 if name == "image" else None,
            }
        for column in schema.columns:
            document[f"meta:{column.name}"] = getattr(item, column.name)
        document["thumbnail"] = own_object_id(dataset_id, "thumbnail", sample.hex).bytes
        documents.append(document)
    return pa.Table.from_pylist(documents, schema=staged_schema(schema))


def store_bytes(parts: Parts, dataset_id: UUID, rows: Iterable[Item]) -> None:
    """Write the fields and a thumbnail of these samples."""
    native = parts.store.native(project_of(parts))
    samples: list[tuple[bytes, list[tuple[str, bytes]]]] = []
    thumbnails: list[tuple[bytes, list[tuple[str, bytes]]]] = []
    for item in rows:
        fields = {"image": item.image, "note": item.note}
        content = content_hash({name: _native.blake3(data) for name, data in fields.items()})
        samples.append((object_id(dataset_id, sorted(fields), content).bytes, list(fields.items())))
        sample = sample_id(dataset_id, item.source, item.key, content)
        picture = b"RIFF" + hashlib.sha256(item.image).digest()
        thumbnails.append((own_object_id(dataset_id, "thumbnail", sample.hex).bytes, [("data", picture)]))
    native.write("samples", dataset_id.bytes, samples)
    native.write("objects", dataset_id.bytes, thumbnails)


def project_of(parts: Parts) -> Project:
    with parts.catalog.unit(is_read_only=True) as unit:
        return unit.session.query(Project).one()


def create_dataset(parts: Parts, name: str = "demo", schema: DatasetSchema | None = SCHEMA) -> UUID:
    with parts.catalog.unit() as unit:
        body = DatasetCreate(name=name, dataset_schema=schema)
        return DatasetService(unit, parts.store, parts.bus).create(body, actor=actor_of(parts)).id


def prepare(
    parts: Parts, dataset_id: UUID, tables: Iterable[pa.Table], *, parent: int | None = None
) -> PreparedVersion:
    return VersionPublisher(parts).prepare(dataset_id, None, tables, parent=parent)


def publish(parts: Parts, dataset_id: UUID, tables: Iterable[pa.Table], *, parent: int | None = None) -> VersionRead:
    prepared = prepare(parts, dataset_id, tables, parent=parent)
    with parts.catalog.unit() as unit:
        return VersionService(unit, parts.store, parts.bus).publish(prepared, fence_check=lambda _: None)
