"""The query copies of one process: opened once, built from the store when this machine has none."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.manifests.parts import Part, PartStore
from penstock_server.manifests.queries import QueryCopy, StaleCopy
from penstock_server.manifests.query_copy import build_query_copy

MAX_OPEN = 16


@dataclass(frozen=True)
class ManifestRef:
    """A published manifest, free of the catalog's session."""

    version_id: UUID
    schema: DatasetSchema
    parts: Sequence[Part]


def copy_path(data_folder: Path, version_id: UUID) -> Path:
    return data_folder / "queries" / f"{version_id}.duckdb"


class QueryCopies:
    """A small cache of open copies; the files stay on disk and may be removed while nobody looks."""

    def __init__(self, data_folder: Path) -> None:
        self._data_folder = data_folder
        self._lock = threading.Lock()
        self._building: dict[UUID, threading.Lock] = {}
        self._open: OrderedDict[UUID, QueryCopy] = OrderedDict()

    def open(self, manifest: ManifestRef, source: PartStore) -> QueryCopy:
        """The copy of this version; the first caller builds it while others of the same version wait."""
        with self._lock:
            found = self._open.get(manifest.version_id)
            if found is not None:
                self._open.move_to_end(manifest.version_id)
                return found
            building = self._building.setdefault(manifest.version_id, threading.Lock())
        with building:
            with self._lock:
                found = self._open.get(manifest.version_id)
            if found is not None:
                return found
            copy = self._load(manifest, source)
            with self._lock:
                self._open[manifest.version_id] = copy
                self._building.pop(manifest.version_id, None)
                # Left to the garbage collector: a query may still be running on the oldest one.
                while len(self._open) > MAX_OPEN:
                    self._open.popitem(last=False)
            return copy

    def close(self) -> None:
        with self._lock:
            for copy in self._open.values():
                copy.close()
            self._open.clear()

    def _load(self, manifest: ManifestRef, source: PartStore) -> QueryCopy:
        path = copy_path(self._data_folder, manifest.version_id)
        if path.exists():
            try:
                return QueryCopy(path, manifest.schema)
            except StaleCopy:
                path.unlink(missing_ok=True)
        build_query_copy(path, manifest.parts, manifest.schema, source=source)
        return QueryCopy(path, manifest.schema)
