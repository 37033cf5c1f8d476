"""A small dataset in a real native store, and an API in front of it that answers from memory."""

import hashlib
import io
import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from penstock import Client, _native
from penstock.contract import ids
from penstock.contract import members as layout
from penstock.contract.kinds import ColumnKind, FieldKind
from penstock.contract.records import SAMPLES_TABLE, format_digest

NOW = "2026-11-16T12:00:00Z"
SIDE = 8


class FakeApi:
    """Answers requests by (method, path); keeps what it was asked."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Callable[[httpx.Request], httpx.Response]] = {}
        self.requests: list[httpx.Request] = []
        self.is_down = False

    def answer(self, method: str, path: str, document: Any, status: int = 200) -> None:
        self.routes[method, "/api/v1" + path] = lambda request: httpx.Response(status, json=document)

    def serve(self, method: str, path: str, handler: Callable[[httpx.Request], httpx.Response]) -> None:
        self.routes[method, "/api/v1" + path] = handler

    def bodies(self, method: str, path: str) -> list[Any]:
        wanted = (method, "/api/v1" + path)
        return [json.loads(asked.content) for asked in self.requests if (asked.method, asked.url.path) == wanted]

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        self.requests.append(request)
        handler = self.routes.get((request.method, request.url.path))
        if handler is None:
            problem = {"status": 404, "code": "request.not_found", "detail": f"no route {request.url.path}"}
            return httpx.Response(404, json=problem)
        return handler(request)

    def client(self, **options: Any) -> Client:
        return Client("http://127.0.0.1:9", "pst_secret", http_transport=httpx.MockTransport(self.handle), **options)


class Training:
    """A dataset `demo` with a subset `train`; sample i has a picture whose every pixel tells i."""

    classes = ("no", "yes", "unsure")

    def __init__(
        self,
        api: FakeApi,
        store_config: dict[str, Any],
        *,
        count: int,
        rows_a_part: int,
        dataset_id: uuid.UUID | None = None,
    ) -> None:
        self.api = api
        self.store_config = store_config
        self.count = count
        self.dataset_id = dataset_id or uuid.uuid4()
        self.sample_ids = [
            ids.sample_id(self.dataset_id, "demo", f"{index}.png", index.to_bytes(32, "big")) for index in range(count)
        ]
        self.object_ids = [
            ids.object_id(self.dataset_id, ["image", "mask"], index.to_bytes(32, "big")) for index in range(count)
        ]
        self.payloads = [{"image": picture(index), "mask": mask(index)} for index in range(count)]
        self.index_of = {str(sample_id): index for index, sample_id in enumerate(self.sample_ids)}
        self.header = layout.MembersHeader(
            (layout.MembersField("image", FieldKind.IMAGE), layout.MembersField("mask", FieldKind.MASK)),
            (
                layout.MembersColumn("tumor", ColumnKind.CATEGORY, self.classes),
                layout.MembersColumn("age", ColumnKind.INT),
                layout.MembersColumn("weight", ColumnKind.FLOAT),
                layout.MembersColumn("flag", ColumnKind.BOOL),
                layout.MembersColumn("findings", ColumnKind.MULTI_CATEGORY, tuple("abcdefghij")),
                layout.MembersColumn("note", ColumnKind.TEXT),
            ),
        )
        self.parts = [
            self._part(range(start, min(count, start + rows_a_part))) for start in range(0, count, rows_a_part)
        ]
        self._offer()

    @staticmethod
    def pixels(index: int) -> np.ndarray:
        """The picture of sample `index`: rows, columns, channels."""
        colour = np.array([index % 256, index // 256, hashlib.sha256(str(index).encode()).digest()[0]], np.uint8)
        return np.broadcast_to(colour, (SIDE, SIDE, 3)).copy()

    def write(self) -> None:
        with _native.Store.open(json.dumps(self.store_config)) as store:
            self.write_to(store)

    def write_to(self, store: Any) -> None:
        objects = [
            (object_id.bytes, list(payload.items()))
            for object_id, payload in zip(self.object_ids, self.payloads, strict=True)
        ]
        store.write(SAMPLES_TABLE, self.dataset_id.bytes, objects)

    def _part(self, rows: range) -> bytes:
        def fixed(values: list[bytes], width: int) -> "pa.Array[Any]":
            return pa.array(values, pa.binary(width))

        columns: dict[str, pa.Array[Any]] = {
            layout.ID_COLUMN: fixed([self.sample_ids[row].bytes for row in rows], 16),
            layout.ROW_COLUMN: pa.array(list(rows), pa.int64()),
        }
        for field in ("image", "mask"):
            stored = [self.payloads[row][field] for row in rows]
            columns[layout.object_column(field)] = fixed([self.object_ids[row].bytes for row in rows], 16)
            columns[layout.size_column(field)] = pa.array([len(data) for data in stored], pa.uint64())
            columns[layout.xxh3_column(field)] = pa.array([_native.xxh3_64(data) for data in stored], pa.uint64())
        values: dict[str, pa.Array[Any]] = {
            "tumor": pa.array([row % 4 - 1 for row in rows], pa.int32()),
            "age": pa.array(list(rows), pa.int64()),
            "weight": pa.array([row / 2 for row in rows], pa.float64()),
            "flag": pa.array([row % 3 - 1 for row in rows], pa.int8()),
            "findings": fixed([(1 << row % 10).to_bytes(2, "little") for row in rows], 2),
            "note": pa.array([f"note {row}" for row in rows], pa.large_utf8()),
        }
        columns |= {layout.value_column(name): array for name, array in values.items()}
        schema = pa.schema(
            [pa.field(name, array.type, nullable=False) for name, array in columns.items()],
            metadata={layout.METADATA_KEY: self.header.to_json()},
        )
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))
        return sink.getvalue()

    def plan(self, **changes: Any) -> dict[str, Any]:
        digest = format_digest(b"\1" * 32)
        parts = []
        for number, data in enumerate(self.parts):
            table = pa.ipc.open_file(data).read_all()
            found = format_digest(_native.blake3(_native.row_hashes(table)))
            object_id = str(uuid.UUID(int=number))
            url = f"/api/v1/datasets/demo/members/{object_id}"
            parts.append({"object_id": object_id, "digest": found, "rows": len(table), "bytes": len(data), "url": url})
        document = {
            "dataset": {"id": str(self.dataset_id), "slug": "demo"},
            "version": {"number": 3, "digest": digest},
            "split": {"name": "by-patient", "number": 2, "digest": digest},
            "subset": {"name": "train", "count": self.count, "digest": digest},
            "schema": {"fields": [{"name": "image", "kind": "image"}], "columns": []},
            "parts": parts,
            "store": {"reach": "direct", "config": self.store_config, "host": None, "reason": None},
            "live_url_base": "http://127.0.0.1:9/live",
        }
        return document | changes

    def _offer(self) -> None:
        self.api.answer("POST", "/loaders/resolve", self.plan())
        for number, data in enumerate(self.parts):
            path = f"/datasets/demo/members/{uuid.UUID(int=number)}"
            self.api.serve("GET", path, partial(_content, data))
        registered = {"id": "loader-1", "run_id": "run-1", "live_url": f"http://127.0.0.1:9/live/{uuid.uuid4()}"}
        self.api.answer("POST", "/loaders", registered, 201)
        for verb in ("points", "end"):
            self.api.serve("POST", f"/loaders/loader-1/{verb}", lambda request: httpx.Response(204))


def _content(data: bytes, request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=data, request=request)


def picture(index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(Training.pixels(index)).save(file, "PNG")
    return file.getvalue()


def mask(index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((SIDE, SIDE), index % 7, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or touches the user's own settings, cache or server."""
    for name in ("PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_DATASET", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_STATE_FOLDER", str(tmp_path / "state"))


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def training(api: FakeApi) -> Iterator[Training]:
    """101 samples in two parts, in a store in memory."""
    made = Training(api, {"kind": "memory", "name": uuid.uuid4().hex}, count=101, rows_a_part=60)
    store = _native.Store.open(json.dumps(made.store_config))
    made.write_to(store)
    yield made
    store.close()


@pytest.fixture
def lmdb_training(api: FakeApi, tmp_path: Path) -> Training:
    """The same in an embedded store on disk, as a server on this machine would offer it."""
    folder = tmp_path / "store"
    folder.mkdir()
    made = Training(api, {"kind": "lmdb", "path": str(folder), "is_read_only": False}, count=101, rows_a_part=60)
    made.write()
    made.store_config = made.store_config | {"is_read_only": True}
    return made
