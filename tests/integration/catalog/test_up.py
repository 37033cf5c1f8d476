"""`penstock up` as a process: what it prints, what it refuses, and that nothing of it is left."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

PENSTOCK = Path(sys.executable).with_name("penstock")
START_SECONDS = 150
LINK = re.compile(r"Penstock is running, open (http://127\.0\.0\.1:\d+)/login#code=(\S+)")
# The promise is 5 s; a machine that runs other tests at the same time gets twice that.
STOP_SECONDS = 10


class Place:
    """Folders of one server, and the commands in them."""

    def __init__(self, folder: Path) -> None:
        self.data, self.state = folder / "data", folder / "state"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.environment = {
            **kept,
            "PENSTOCK_DATA_FOLDER": str(self.data),
            "PENSTOCK_STATE_FOLDER": str(self.state),
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> "Server":
        process = subprocess.Popen(
            [PENSTOCK, "up", *arguments], env=self.environment, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )
        self.started.append(process)
        assert process.stdout is not None
        match = LINK.search(process.stdout.readline())
        assert match, f"up ended with {process.poll()}"
        return Server(process, match.group(1), match.group(2))

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | settings
        command = [str(PENSTOCK), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


class Server:
    def __init__(self, process: subprocess.Popen[str], url: str, code: str) -> None:
        self.process, self.url, self.code = process, url, code

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task")
        found: list[int] = []
        for task in path.iterdir():
            found.extend(int(pid) for pid in (task / "children").read_text().split())
        return found

    def stop(self, number: signal.Signals) -> float:
        started_at = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        return time.monotonic() - started_at


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_for(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(600)
def test_a_server_from_start_to_end(place: Place) -> None:
    server = place.start("--port", "0")
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

    _wait_for(lambda: len(server.children()) == 1, "the worker did not start")
    worker = server.children()[0]
    os.kill(worker, signal.SIGKILL)
    _wait_for(lambda: server.children() not in ([], [worker]), "the worker did not start again")
    again = server.children()[0]

    assert server.stop(signal.SIGINT) < STOP_SECONDS
    assert server.process.returncode == 0
    assert not _is_alive(again)
    assert not (place.state / "server.json").exists()


@pytest.mark.timeout(600)
def test_the_worker_dies_with_a_killed_server_and_the_next_start_goes_on(place: Place) -> None:
    server = place.start("--port", "0")
    token = json.loads((place.state / "server.json").read_text())["token"]
    _wait_for(lambda: len(server.children()) == 1, "the worker did not start")
    # The child asks the kernel for the signal in its first moments.
    worker = server.children()[0]
    _wait_for(lambda: b"penstock_workers" in Path(f"/proc/{worker}/cmdline").read_bytes(), "not our worker")
    time.sleep(3)
    server.stop(signal.SIGKILL)
    _wait_for(lambda: not _is_alive(worker), "the worker outlived its server", 30)

    following = place.start("--port", "0", "--api-only")

    assert following.children() == []
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{following.url}/api/v1/projects", headers=bearer).status_code == 401
    with httpx.stream("GET", f"{following.url}/healthz") as _:
        assert following.stop(signal.SIGTERM) < STOP_SECONDS
    assert following.process.returncode == 0


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
        assert "newer version of Penstock" in refused.stderr
        assert "Traceback" not in refused.stderr


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
        refused = place.run("up", "--port", str(taken.getsockname()[1]))

    assert refused.returncode == 1
    assert not (place.data / "catalog.sqlite3").exists()
