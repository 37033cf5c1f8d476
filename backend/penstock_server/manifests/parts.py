"""Parts of a manifest as objects in the store: Parquet a family, row hashes beside it, a bitmap of removed rows."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import _native
from penstock.contract.records import OWN_MANIFEST
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.manifests.arrays import Bytes, Mask, fixed_bytes
from penstock_server.manifests.families import FACTS, hashed_families, logical_table, stored_tables
from penstock_server.store.gateway import StoreGateway, StoreProject

MAX_PART_ROWS = 131_072
_HASH_BYTES = 16


@dataclass(frozen=True)
class FamilyPart:
    """One Parquet file, and where the hashes of its rows are (None for derived values, which no digest covers)."""

    object_id: UUID
    byte_count: int
    hashes: UUID | None

    def to_json(self) -> dict[str, Any]:
        hashes = None if self.hashes is None else str(self.hashes)
        return {"object_id": str(self.object_id), "bytes": self.byte_count, "hashes": hashes}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        hashes = document["hashes"]
        return cls(UUID(document["object_id"]), int(document["bytes"]), None if hashes is None else UUID(hashes))


@dataclass(frozen=True)
class Part:
    """Up to 131,072 consecutive rows of a manifest; `cover` names samples for the dataset's tile."""

    rows: int
    families: Mapping[str, FamilyPart]
    deleted: UUID | None = None
    deleted_count: int = 0
    cover: tuple[UUID, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "deleted": None if self.deleted is None else str(self.deleted),
            "deleted_count": self.deleted_count,
            "cover": [str(sample_id) for sample_id in self.cover],
            "families": {name: part.to_json() for name, part in sorted(self.families.items())},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        deleted = document["deleted"]
        return cls(
            rows=int(document["rows"]),
            families={name: FamilyPart.from_json(item) for name, item in document["families"].items()},
            deleted=None if deleted is None else UUID(deleted),
            deleted_count=int(document["deleted_count"]),
            cover=tuple(UUID(text) for text in document["cover"]),
        )


class PartStore:
    """Reads and writes the parts of one dataset's manifests."""

    def __init__(self, store: StoreGateway, project: StoreProject, *, dataset_id: UUID) -> None:
        self._store = store
        self._project = project
        self._dataset_id = dataset_id

    def write(self, staged: pa.Table, schema: DatasetSchema, *, cover: Sequence[UUID]) -> Part:
        """Write all families of up to MAX_PART_ROWS staged rows."""
        hashed = set(hashed_families(schema))
        families = {}
        for name, table in stored_tables(staged, schema).items():
            hashes = None
            if name in hashed:
                hashes = self._put(f"hashes:{name}", row_hashes(logical_table(name, table, schema)))
            data = _to_parquet(table)
            families[name] = FamilyPart(self._put(name, data), len(data), hashes)
        return Part(rows=staged.num_rows, families=families, cover=tuple(cover))

    def without(self, part: Part, removed: Mask, *, cover: Sequence[UUID]) -> Part:
        """The same part with these rows (a mask) removed too; no Parquet file is written again."""
        mask = ~self.live(part) | removed
        bitmap = np.packbits(mask, bitorder="little").tobytes()
        return replace(part, deleted=self._put("deleted", bitmap), deleted_count=int(mask.sum()), cover=tuple(cover))

    def live(self, part: Part) -> Mask:
        """A mask of the rows that are not removed."""
        if part.deleted is None:
            return np.ones(part.rows, dtype=bool)
        bits = np.frombuffer(self._get(part.deleted), dtype=np.uint8)
        return ~np.unpackbits(bits, count=part.rows, bitorder="little").astype(bool)

    def table(self, part: Part, family: str) -> pa.Table:
        """All rows of a family, removed ones included."""
        return pq.read_table(pa.BufferReader(self._get(part.families[family].object_id)))

    def hashes(self, part: Part, family: str) -> Bytes:
        """The cached row hashes of a family: (rows, 16) bytes."""
        object_id = part.families[family].hashes
        if object_id is None:
            raise KeyError(family)
        return np.frombuffer(self._get(object_id), dtype=np.uint8).reshape(-1, _HASH_BYTES)

    def live_hashes(self, parts: Sequence[Part], schema: DatasetSchema) -> tuple[bytes, list[tuple[str, bytes]]]:
        """Ids and row hashes a family of all rows that are left, as the version's digest takes them."""
        masks = [self.live(part) for part in parts]
        ids = b"".join(
            fixed_bytes(self.table(part, FACTS)["id"], width=_HASH_BYTES)[mask].tobytes()
            for part, mask in zip(parts, masks, strict=True)
        )
        families = [
            (name, b"".join(self.hashes(part, name)[mask].tobytes() for part, mask in zip(parts, masks, strict=True)))
            for name in hashed_families(schema)
        ]
        return ids, families

    def _put(self, name: str, data: bytes) -> UUID:
        # Named by its bytes: writing it twice is harmless and an object never changes.
        content = _native.blake3(data).hex()
        return self._store.put_own(self._project, self._dataset_id, OWN_MANIFEST, f"{name}/{content}", data)

    def _get(self, object_id: UUID) -> bytes:
        return self._store.get_own(self._project, self._dataset_id, object_id)


def row_hashes(table: pa.Table) -> bytes:
    """16 bytes a row over the table's values."""
    return _native.row_hashes(table.combine_chunks())


def _to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=True, write_statistics=False)
    return sink.getvalue()
