"""`penstock up` as a process: what it prints, what it refuses, and that nothing of it is left."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from harness.penstock_processes import PENSTOCK, Server, start_server
from harness.processes import ProcessIdentity
from harness.run import Run
from harness.services import Services

# The promise is 5 s; a machine that runs other tests at the same time gets twice that.
STOP_SECONDS = 10


class Place:
    """Folders of one server, and the commands in them."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.data, self.state = folder / "data", folder / "state"
        self._run = run
        self._settings = {"PENSTOCK_DATA_FOLDER": str(self.data), "PENSTOCK_STATE_FOLDER": str(self.state)}
        self._started: list[Server] = []

    def start(self, *arguments: str) -> Server:
        server = start_server(self._run, self._settings, *arguments)
        self._started.append(server)
        return server

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = self._run.environment(self._settings | settings)
        command = [str(PENSTOCK), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def close(self) -> None:
        for server in self._started:
            server.process.kill()


@pytest.fixture
def place(services: Services, tmp_path: Path) -> Iterator[Place]:
    place = Place(services.run, tmp_path)
    yield place
    place.close()


def _seconds_to_stop(server: Server, number: signal.Signals) -> float:
    started_at = time.monotonic()
    server.process.stop(with_signal=number, seconds=60)
    return time.monotonic() - started_at


def _worker_of(server: Server) -> ProcessIdentity:
    _wait_for(lambda: len(server.children()) == 1, "the worker did not start")
    worker = ProcessIdentity.of(server.children()[0])
    assert worker is not None
    return worker


def _wait_for(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_a_server_from_start_to_end(place: Place) -> None:
    server = place.start()
    found = json.loads((place.state / "server.json").read_text())

    assert (found["url"], found["pid"], found["data_folder"]) == (server.url, server.process.pid, str(place.data))
    assert (place.state / "server.json").stat().st_mode & 0o777 == 0o600
    assert place.data.stat().st_mode & 0o777 == 0o700
    assert httpx.post(f"{server.url}/api/v1/session", json={"code": server.code}).status_code == 200
    bearer = {"Authorization": f"Bearer {found['token']}"}
    assert httpx.get(f"{server.url}/api/v1/projects", headers=bearer).json()["items"][0]["slug"] == "default"

    second = place.run("up", "--port", "0")
    assert second.returncode == 1
    assert f"pid {server.process.pid}" in second.stderr
    taken = place.run("up", "--port", server.url.rpartition(":")[2], "--data-folder", str(place.data.parent / "other"))
    assert taken.returncode == 1
    assert "is in use" in taken.stderr
    link = place.run("login-link")
    code = link.stdout.strip().partition("#code=")[2]
    assert httpx.post(f"{server.url}/api/v1/session", json={"code": code}).status_code == 200
    for refused in (second, taken):
        assert "Traceback" not in refused.stderr

    worker = _worker_of(server)
    os.kill(worker.pid, signal.SIGKILL)
    _wait_for(lambda: server.children() not in ([], [worker.pid]), "the worker did not start again")
    again = _worker_of(server)

    assert _seconds_to_stop(server, signal.SIGINT) < STOP_SECONDS
    assert server.process.exit_code == 0
    assert not again.is_alive()
    assert not (place.state / "server.json").exists()


@pytest.mark.timeout(600)
def test_the_worker_dies_with_a_killed_server_and_the_next_start_goes_on(place: Place) -> None:
    server = place.start()
    token = json.loads((place.state / "server.json").read_text())["token"]
    # The child asks the kernel for the signal in its first moments.
    worker = _worker_of(server)
    _wait_for(lambda: b"penstock_workers" in Path(f"/proc/{worker.pid}/cmdline").read_bytes(), "not our worker")
    time.sleep(3)
    _seconds_to_stop(server, signal.SIGKILL)
    _wait_for(lambda: not worker.is_alive(), "the worker outlived its server", 30)

    following = place.start("--api-only")

    assert following.children() == []
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{following.url}/api/v1/projects", headers=bearer).status_code == 401
    with httpx.stream("GET", f"{following.url}/healthz") as _:
        assert _seconds_to_stop(following, signal.SIGTERM) < STOP_SECONDS
    assert following.process.exit_code == 0


@pytest.mark.timeout(300)
def test_a_catalog_of_a_newer_version_is_refused(place: Place) -> None:
    assert place.run("migrate").stdout == "The catalog has been brought up to date.\n"
    assert place.run("migrate").stdout == "The catalog is up to date.\n"
    with closing(sqlite3.connect(place.data / "catalog.sqlite3")) as catalog:
        catalog.execute("UPDATE alembic_version SET version_num = '9999'")
        catalog.commit()

    for command in (["up", "--port", "0"], ["migrate"]):
        refused = place.run(*command)
        assert refused.returncode == 1
        assert "made by a newer version of Penstock" in refused.stderr
        assert "install the newer version again, or choose another data folder" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"PENSTOCK_DATA_FOLDER": "/proc/penstock"}, "cannot be written"),
        ({"PENSTOCK_DATA_FOLDER": "/dev/null/x"}, "cannot be written"),
        ({"PENSTOCK_STATE_FOLDER": "/dev/null"}, "the state folder /dev/null cannot be written"),
        ({"PENSTOCK_CATALOG__URL": "postgresql://u:hunter2@127.0.0.1:1/x"}, "check that the database runs"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(place: Place, settings: dict[str, str], expected: str) -> None:
    refused = place.run("up", "--port", "0", **settings)

    assert refused.returncode == 1
    assert expected in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "hunter2" not in refused.stderr


@pytest.mark.timeout(300)
def test_a_file_that_is_no_catalog_is_refused(place: Place) -> None:
    place.data.mkdir()
    (place.data / "catalog.sqlite3").write_text("this is no database, it is a letter" * 100)

    refused = place.run("up", "--port", "0")

    assert refused.returncode == 1
    assert "cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.timeout(300)
def test_wrong_settings_are_all_listed_with_exit_code_two(place: Place) -> None:
    refused = place.run("up", PENSTOCK_SERVER__PORT="eighty", PENSTOCK_STORE__KIND="cql", PENSTOCK_LOG__COLOR="x")

    assert refused.returncode == 2
    assert refused.stderr.count("\n  - PENSTOCK_") == 3
    assert not place.data.exists()


@pytest.mark.timeout(300)
def test_without_a_server_login_link_says_what_to_do(place: Place) -> None:
    refused = place.run("login-link")

    assert refused.returncode == 1
    assert "penstock up" in refused.stderr


def test_a_listening_port_is_seen_before_anything_is_made(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = place.run("up", "--port", str(port))

    assert refused.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use by another program" in refused.stderr
    assert "choose another with --port" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (place.data / "catalog.sqlite3").exists()
