"""One door to the sample store for the server and the workers."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import structlog

from penstock import _native
from penstock._errors import ConfigError, SampleCorrupt, SampleMissing, StoreFull, StoreRefused, StoreUnavailable
from penstock.contract.codes import ErrorCode
from penstock.contract.ids import own_object_id
from penstock.contract.records import OBJECTS_TABLE, OWN_FIELD
from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import StoreSettings
from penstock_server.store.identity import machine_id

_HEALTH_SECONDS = 2.0
_CLOSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class StoreProject(Protocol):
    """What the store needs to know of a project; the catalog's row fits."""

    @property
    def id(self) -> UUID: ...

    @property
    def keyspace(self) -> str: ...


class ObjectMissing(DependencyUnavailable):
    """An object that the catalog names is not in the store."""


class StoreGateway:
    """Opens a native store a project, on first use and once a process, and keeps our own objects in it."""

    def __init__(self, settings: StoreSettings, data_folder: Path) -> None:
        self._settings = settings
        self._folder = settings.path if settings.path is not None else data_folder / "store"
        self._lock = threading.Lock()
        self._stores: dict[tuple[int, UUID], _native.Store] = {}
        self._ensured: set[UUID] = set()

    @property
    def kind(self) -> str:
        return self._settings.kind

    def ensure_project(self, project: StoreProject) -> None:
        """Create the project's keyspace, tables and reader, or its folder; does nothing the second time."""
        with self._lock:
            if project.id in self._ensured:
                return
            if self._settings.kind == "cql":
                # Imported here: the embedded way to run never loads the driver.
                from penstock_server.store.cql_schema import ensure_keyspace

                ensure_keyspace(self._settings, project.keyspace)
            else:
                self._make_folder(project)
            self._ensured.add(project.id)

    def native(self, project: StoreProject) -> _native.Store:
        """The project's store, opened for writing."""
        # A child of a fork must not use its parent's store.
        place = (os.getpid(), project.id)
        found = self._stores.get(place)
        if found is not None:
            return found
        self.ensure_project(project)
        with self._lock:
            if place not in self._stores:
                with store_errors():
                    self._stores[place] = _native.Store.open(json.dumps(self._config(project)))
            return self._stores[place]

    def reader_config(self, project: StoreProject) -> dict[str, Any]:
        """How a loader reaches this project's bytes: `LoaderPlan.store`."""
        if self._settings.kind == "lmdb":
            self._make_folder(project)
            config = {**self._config(project), "is_read_only": True}
            return {"reach": "local_only", "config": config, "host": machine_id(self._folder), "reason": None}
        from penstock_server.store.cql_schema import reader_role

        role = reader_role(self._settings, project.keyspace)
        config = self._config(project)
        config["contact_points"] = list(self._settings.public_contact_points or self._settings.contact_points)
        config["username"] = None if role is None else role.username
        config["password"] = None if role is None else role.password
        return {"reach": "direct", "config": config, "host": None, "reason": None}

    def health(self, project: StoreProject | None = None) -> str | None:
        """None, or what is wrong with the store: of a project all that its first use needs, else that a node answers.

        Anybody may ask for it, and what a store says can name its accounts: that goes to the log.
        """
        if self._settings.kind == "lmdb":
            return self._folder_problem()
        if project is not None:
            return self._use_problem(project)
        opened = [store for (pid, _), store in list(self._stores.items()) if pid == os.getpid()]
        if opened:
            try:
                opened[0].ping()
            except (StoreUnavailable, StoreRefused, ConfigError) as error:
                return str(error)
            return None
        return self._connect_problem()

    def put_own(self, project: StoreProject, dataset_id: UUID, kind: str, name: str, data: bytes) -> UUID:
        """Store an object of our own under an id derived from (dataset, kind, name)."""
        object_id = own_object_id(dataset_id, kind, name)
        with store_errors():
            self.native(project).write(OBJECTS_TABLE, dataset_id.bytes, [(object_id.bytes, [(OWN_FIELD, data)])])
        return object_id

    def get_own(self, project: StoreProject, dataset_id: UUID, object_id: UUID) -> bytes:
        """The bytes of an object of our own; raises ObjectMissing."""
        return self.read_field(project, dataset_id, object_id, table=OBJECTS_TABLE, field=OWN_FIELD)

    def read_field(self, project: StoreProject, dataset_id: UUID, object_id: UUID, *, table: str, field: str) -> bytes:
        """The verified bytes of one field of one object; raises ObjectMissing."""
        with store_errors():
            found = self.native(project).read(table, dataset_id.bytes, [object_id.bytes], [field])
        payload = found[0]
        if payload is None or field not in payload:
            raise ObjectMissing(
                ErrorCode.STORE_UNAVAILABLE,
                f"object {object_id} is not in the store; if a node is down, try again when it is back",
                context={"object_id": str(object_id)},
            )
        return bytes(payload[field])

    def close(self) -> None:
        # A store that is being opened, and does not answer, must not hold up the end of the process.
        is_locked = self._lock.acquire(timeout=_CLOSE_SECONDS)
        try:
            for (pid, _), store in list(self._stores.items()):
                if pid == os.getpid():
                    store.close()
            self._stores.clear()
        finally:
            if is_locked:
                self._lock.release()

    def _config(self, project: StoreProject) -> dict[str, Any]:
        settings = self._settings
        if settings.kind == "lmdb":
            return {"kind": "lmdb", "path": str(self._project_folder(project)), "is_read_only": False}
        return {
            "kind": "cql",
            "contact_points": list(settings.contact_points),
            "local_dc": settings.local_dc,
            "keyspace": project.keyspace,
            "username": settings.username,
            "password": settings.password,
            "ca_pem": None if settings.ca_file is None else settings.ca_file.read_text(),
        }

    def _project_folder(self, project: StoreProject) -> Path:
        return self._folder.absolute() / project.id.hex

    def _make_folder(self, project: StoreProject) -> None:
        try:
            machine_id(self._folder)
            self._project_folder(project).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DependencyUnavailable(
                ErrorCode.STORE_UNAVAILABLE, f"the store's folder {self._folder} cannot be used: {error.strerror}"
            ) from error

    def _folder_problem(self) -> str | None:
        try:
            machine_id(self._folder)
        except OSError as error:
            return f"the store's folder {self._folder} cannot be used: {error.strerror}"
        if not os.access(self._folder, os.W_OK):
            return f"the store's folder {self._folder} cannot be written"
        return None

    def _use_problem(self, project: StoreProject) -> str | None:
        try:
            with store_errors():
                self.native(project).ping()
        except DependencyUnavailable as error:
            _log.warning("store.not_ready", reason=error.detail)
            if isinstance(error.__cause__, StoreRefused):
                return (
                    "the store answers, but its tables are gone: restore its keyspace from a backup, or restart the "
                    "server, which makes empty tables; the server's log names them"
                )
            return "the store cannot be opened, or does not answer; the server's log has the reason"
        return None

    def _connect_problem(self) -> str | None:
        problems: Sequence[str] = []
        for point in self._settings.contact_points:
            host, _, port = point.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_HEALTH_SECONDS).close()
            except OSError as error:
                problems = [*problems, f"{point}: {error}"]
            else:
                return None
        return f"no node of the store answers ({'; '.join(problems)})"


@contextmanager
def store_errors() -> Iterator[None]:
    """Native store errors become answers of the server."""
    try:
        yield
    except StoreFull as error:
        raise DependencyUnavailable(ErrorCode.STORE_FULL, f"the store is full: {error}") from error
    except (StoreUnavailable, StoreRefused, SampleMissing, SampleCorrupt, ConfigError) as error:
        raise DependencyUnavailable(ErrorCode.STORE_UNAVAILABLE, str(error)) from error
