"""`penstock up` started well, started badly, and stopped."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from harness.deployments import LOGIN_LINE, PENSTOCK, START_SECONDS, Process, clean_environment, free_port

# A second start is up in under 10 s; three times slack for a busy machine.
SECOND_START_SECONDS = 30


def start(folder: Path, **settings: str) -> Process:
    return Process("server", [str(PENSTOCK), "up", "--port", str(free_port())], clean_environment(folder, **settings))


def refused(folder: Path, *arguments: str, **settings: str) -> str:
    """What a start that must not succeed says; never a traceback."""
    ended = subprocess.run(
        [str(PENSTOCK), "up", *arguments],
        env=clean_environment(folder, **settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode not in (0, None), ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout
    return ended.stderr


def family(process: Process) -> list[psutil.Process]:
    parent = psutil.Process(process.popen.pid)
    return [parent, *parent.children(recursive=True)]


def test_second_start_is_quick_and_ctrl_c_leaves_no_process(run_folder: Path) -> None:
    first = start(run_folder)
    first.wait_for(LOGIN_LINE, START_SECONDS)
    first.stop()
    began = time.monotonic()
    second = start(run_folder)
    second.wait_for(LOGIN_LINE, START_SECONDS)
    assert time.monotonic() - began < SECOND_START_SECONDS
    members = family(second)
    assert len(members) >= 2
    assert second.stop() == 0
    psutil.wait_procs(members, timeout=10)
    assert [member for member in members if member.is_running() and member.status() != psutil.STATUS_ZOMBIE] == []
    assert not (run_folder / "state" / "server.json").exists()


def test_killed_server_takes_its_worker_along(run_folder: Path) -> None:
    server = start(run_folder)
    server.wait_for(LOGIN_LINE, START_SECONDS)
    members = family(server)
    os.kill(server.popen.pid, signal.SIGKILL)
    server.popen.wait(10)
    _, alive = psutil.wait_procs(members, timeout=15)
    assert alive == []


def test_discovery_and_data_are_for_the_owner_alone(run_folder: Path) -> None:
    server = start(run_folder)
    try:
        server.wait_for(LOGIN_LINE, START_SECONDS)
        assert (run_folder / "state" / "server.json").stat().st_mode & 0o777 == 0o600
        assert (run_folder / "data").stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()


def test_port_in_use_is_said(run_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refused(run_folder, "--port", str(port))
    assert str(port) in message
    assert "in use" in message


def test_second_server_on_the_same_folder_is_refused_with_the_pid_of_the_first(run_folder: Path) -> None:
    server = start(run_folder)
    try:
        server.wait_for(LOGIN_LINE, START_SECONDS)
        assert str(server.popen.pid) in refused(run_folder, "--port", "0")
    finally:
        server.stop()


def test_data_folder_that_cannot_be_written_is_said(run_folder: Path) -> None:
    blocker = run_folder / "file"
    blocker.write_text("a file where a folder should be")
    message = refused(run_folder, "--port", "0", PENSTOCK_DATA_FOLDER=str(blocker / "data"))
    assert str(blocker) in message


def test_catalog_of_a_newer_version_is_refused_and_left_alone(run_folder: Path) -> None:
    server = start(run_folder)
    server.wait_for(LOGIN_LINE, START_SECONDS)
    server.stop()
    catalog = next((run_folder / "data").glob("*.sqlite*"))
    with sqlite3.connect(catalog) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    connection.close()
    message = refused(run_folder, "--port", "0")
    assert "newer" in message
    with sqlite3.connect(catalog) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999_from_the_future",)
    connection.close()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"PENSTOCK_STORE__KIND": "floppy", "PENSTOCK_SERVER__PORT": "many"}, ["store.kind", "server.port"]),
        ({"PENSTOCK_QUEUE__KIND": "celery"}, ["redis_url"]),
    ],
)
def test_wrong_settings_are_all_listed_at_once(run_folder: Path, settings: dict[str, str], named: list[str]) -> None:
    message = refused(run_folder, **settings).lower()
    for name in named:
        assert re.search(name.replace(".", r"(\.|__)"), message), message
