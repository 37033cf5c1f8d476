"""Ingests, jobs, loaders and runs through HTTP."""

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import select
from unit.jobs.stage import DATASET, Stage, embedded_settings, open_stage, write_pictures

from penstock_server.app import create_app
from penstock_server.domain.pages import Cursor, encode_cursor
from penstock_server.domain.tokens.schemas import TokenCreate
from penstock_server.domain.tokens.service import TokenService
from penstock_server.models import Job
from penstock_server.serving import HttpServer

POINT: dict[str, Any] = {
    "at": "2026-05-31T12:00:00Z", "seconds": 2.0, "epoch": 0, "step": 1, "steps": 4, "samples": 64, "bytes": 6400,
    "batches": 1, "wait_seconds": 0.1, "decode_seconds": 0.0, "ready_batches": 1, "window_bytes": 1024,
    "inflight_bytes": 0, "request_p50_ms": 1.0, "request_p99_ms": 2.0, "retries": 0, "errors": 0,
}  # fmt: skip
LOADER: dict[str, Any] = {
    "run": "a", "dataset": DATASET, "version": 1, "split": "s@1", "subset": "train", "rank": 0, "world_size": 1,
    "host": "gpu1", "pid": 7, "batch_size": 64, "sample_count": 100, "sdk_version": "0.1.0", "output": "torch",
}  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path, migrated_catalog: Path) -> Iterator[Stage]:
    settings = embedded_settings(tmp_path)
    settings.data_folder.mkdir(mode=0o700)
    shutil.copy(migrated_catalog, settings.data_folder / "catalog.sqlite3")
    stage = open_stage(settings)
    yield stage
    stage.services.close()


@pytest.fixture
def http(stage: Stage) -> Iterator[httpx.Client]:
    """A client of a real server on a loopback port."""
    with stage.services.catalog.unit() as unit:
        token = TokenService(unit).create(stage.actor.user_id, TokenCreate(name="test"))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    app, started = create_app(stage.settings, services=stage.services), threading.Event()
    server = HttpServer(app, stage.settings.server, on_started=started.set, on_stopping=lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    assert started.wait(60)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token.secret}"}, timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    write_pictures(folder, 4)
    return folder


class TestIngests:
    def test_request_is_accepted_as_a_job_and_runs(self, http: httpx.Client, stage: Stage, folder: Path) -> None:
        answer = http.post(f"/datasets/{DATASET}/ingests", json={"source": {"kind": "folder", "path": str(folder)}})
        assert answer.status_code == 202
        body = answer.json()
        assert answer.headers["Location"] == f"/api/v1/jobs/{body['id']}"
        assert (body["kind"], body["dataset"], body["state"], body["created_by"]) == (
            "ingest", DATASET, "queued", "admin"
        )  # fmt: skip
        assert body["progress"] == {"done": 0, "total": None, "phase": "plan", "unit": "samples"}
        stage.run_all()
        done = http.get(f"/jobs/{body['id']}").json()
        assert (done["state"], done["result"]) == (
            "succeeded", {"version": 1, "sample_count": 4, "quarantined_count": 0}
        )  # fmt: skip

    def test_repeated_key_gives_the_same_job(self, http: httpx.Client, stage: Stage, folder: Path) -> None:
        body = {"source": {"path": str(folder)}}
        headers = {"Idempotency-Key": "once"}
        first, second = (http.post(f"/datasets/{DATASET}/ingests", json=body, headers=headers) for _ in range(2))
        assert first.json() == second.json()
        assert first.headers["Location"] == second.headers["Location"]
        with stage.services.catalog.unit() as unit:
            assert len(unit.session.scalars(select(Job)).all()) == 1

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("/", "ingest.folder_not_allowed"),
            ("{root}/nothing", "ingest.folder_not_found"),
            ("relative", "ingest.folder_not_found"),
            ("{root}/empty", "ingest.folder_empty"),
        ],
    )
    def test_bad_folder_is_refused_with_its_code(
        self, http: httpx.Client, tmp_path: Path, path: str, code: str
    ) -> None:
        (tmp_path / "empty").mkdir()
        answer = http.post(f"/datasets/{DATASET}/ingests", json={"source": {"path": path.format(root=tmp_path)}})
        assert (answer.status_code, answer.json()["code"]) == (422, code)
        assert http.get("/jobs").json()["items"] == []

    def test_bad_sidecar_is_refused(self, http: httpx.Client, folder: Path) -> None:
        body = {"source": {"path": str(folder)}, "sidecar": "nothing.csv"}
        answer = http.post(f"/datasets/{DATASET}/ingests", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "ingest.sidecar_invalid")

    def test_unknown_dataset_is_not_found(self, http: httpx.Client, folder: Path) -> None:
        answer = http.post("/datasets/nothing/ingests", json={"source": {"path": str(folder)}})
        assert (answer.status_code, answer.json()["code"]) == (404, "dataset.not_found")

    @pytest.mark.parametrize(
        "body",
        [
            {}, {"source": {}}, {"source": {"path": ""}}, {"source": {"path": "/a", "kind": "bucket"}},
            {"source": {"path": "/a", "name": "../up"}}, {"source": {"path": "/a"}, "label": "two words"},
            {"source": {"path": "/a"}, "other": 1},
        ],
    )  # fmt: skip
    def test_malformed_request_is_invalid(self, http: httpx.Client, body: dict[str, Any]) -> None:
        answer = http.post(f"/datasets/{DATASET}/ingests", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")


class TestJobs:
    @pytest.fixture
    def job_ids(self, stage: Stage, folder: Path) -> list[str]:
        return [str(stage.ingest(folder)) for _ in range(5)]

    def test_list_is_newest_first_in_pages_and_narrowed(
        self, http: httpx.Client, stage: Stage, job_ids: list[str]
    ) -> None:
        first = http.get("/jobs", params={"limit": 3}).json()
        second = http.get("/jobs", params={"limit": 3, "cursor": first["next_cursor"]}).json()
        assert [job["id"] for job in first["items"] + second["items"]] == job_ids[::-1]
        back = http.get("/jobs", params={"limit": 3, "cursor": second["prev_cursor"]}).json()
        assert back["items"] == first["items"]
        stage.runner().run_one()
        assert [job["id"] for job in http.get("/jobs", params={"state": "running"}).json()["items"]] == job_ids[:1]
        assert http.get("/jobs", params={"dataset": "other"}).json()["items"] == []
        assert len(http.get("/jobs", params={"dataset": DATASET, "kind": "ingest"}).json()["items"]) == 5
        assert http.get("/jobs", params={"state": "lost"}).status_code == 422

    def test_forged_cursor_is_invalid(self, http: httpx.Client, stage: Stage) -> None:
        scope = f"jobs:{stage.actor.user_id}:None:None:None"
        for key in ((), ("no uuid",), (5,)):
            cursor = encode_cursor(scope, Cursor(key))
            answer = http.get("/jobs", params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")

    def test_queued_job_is_cancelled_at_once_and_only_once(self, http: httpx.Client, job_ids: list[str]) -> None:
        answer = http.post(f"/jobs/{job_ids[0]}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
        again = http.post(f"/jobs/{job_ids[0]}/cancel")
        assert (again.status_code, again.json()["code"]) == (409, "job.not_cancellable")

    def test_unknown_job_is_not_found(self, http: httpx.Client) -> None:
        for answer in (http.get(f"/jobs/{uuid4()}"), http.post(f"/jobs/{uuid4()}/cancel")):
            assert (answer.status_code, answer.json()["code"]) == (404, "job.not_found")


class TestLoaders:
    def test_loader_reports_and_its_run_is_shown(self, http: httpx.Client, stage: Stage) -> None:
        made = http.post("/loaders", json=LOADER)
        assert made.status_code == 201
        loader_id, run_id = made.json()["id"], made.json()["run_id"]
        assert made.json()["live_url"] == f"{stage.settings.server.url}/live/{run_id}"
        assert http.post(f"/loaders/{loader_id}/points", json={"points": [POINT]}).status_code == 204
        run = http.get(f"/runs/{run_id}").json()
        assert (run["state"], run["totals"]["samples_per_second"], len(run["points"])) == ("running", 32.0, 1)
        assert http.get("/runs", params={"state": "running"}).json()["items"][0]["id"] == run_id
        assert http.post(f"/loaders/{loader_id}/end", json={"state": "ended"}).status_code == 204
        assert http.get(f"/runs/{run_id}").json()["state"] == "ended"

    @pytest.mark.parametrize(
        "change", [{"samples": -1}, {"samples": 2**63}, {"seconds": "fast"}, {"at": "2026-05-31T12:00:00"}]
    )
    def test_point_that_cannot_be_is_refused(self, http: httpx.Client, change: dict[str, Any]) -> None:
        loader_id = http.post("/loaders", json=LOADER).json()["id"]
        answer = http.post(f"/loaders/{loader_id}/points", json={"points": [POINT | change]})
        assert answer.status_code == 422

    def test_unknown_loader_run_and_dataset_are_not_found(self, http: httpx.Client) -> None:
        nobody = uuid4()
        for answer in (
            http.post(f"/loaders/{nobody}/points", json={"points": [POINT]}),
            http.post(f"/loaders/{nobody}/end", json={"state": "ended"}),
            http.get(f"/runs/{nobody}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "loader.not_found")
        assert http.post("/loaders", json=LOADER | {"dataset": "nothing"}).json()["code"] == "dataset.not_found"

    def test_forged_cursor_is_invalid(self, http: httpx.Client, stage: Stage) -> None:
        cursor = encode_cursor(f"runs:{stage.actor.user_id}:None:None", Cursor(("x",)))
        assert http.get("/runs", params={"cursor": cursor}).status_code == 422
