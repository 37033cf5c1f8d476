"""Nothing of a run is left, however it ends: the runs here are pytest processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.processes import ProcessIdentity
from harness.run import ROOT, Run, remove_leftovers

SCRIPT = """
import json, os, sys, time
from pathlib import Path
from harness.processes import ProcessIdentity
from harness.postgres import PostgresServer
from harness.redis_server import RedisServer
from harness.run import Run

run = Run(Path(sys.argv[1]))
services = [RedisServer(run), *([PostgresServer(run)] if "postgres" in sys.argv else [])]
sleeper = run.spawn("sleeper", ["sh", "-c", "sleep 600 & sleep 600"])
time.sleep(0.2)
group = [int(line.split()[0]) for line in os.popen("ps -e -o pid=,pgid=") if line.split()[1] == str(sleeper.pid)]
identities = [ProcessIdentity.of(pid) for pid in {*(process.pid for process in run.processes), *group}]
print(json.dumps([[each.pid, each.start_ticks] for each in identities]), flush=True)
ending = sys.argv[2]
if ending == "error":
    raise RuntimeError("a test failed")
if ending == "exit":
    run.close()
    sys.exit(0)
time.sleep(600)
"""


def start_run(runs: Path, ending: str, *more: str) -> tuple[subprocess.Popen[str], list[ProcessIdentity]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(runs), ending, *more],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    identities = [ProcessIdentity(*pair) for pair in json.loads(process.stdout.readline())]
    process.stdout.close()
    return process, identities


def wait_until_gone(identities: list[ProcessIdentity]) -> None:
    deadline = time.monotonic() + 30
    while alive := [identity for identity in identities if identity.is_alive()]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)


def wait_until_empty(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while left := list(folder.iterdir()):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


@pytest.mark.parametrize("ending", ["exit", "error", "SIGINT", "SIGTERM", "SIGKILL"])
def test_services_end_with_their_run(run_folder: Path, ending: str) -> None:
    process, identities = start_run(run_folder, ending, "postgres")
    # Redis, PostgreSQL, a shell and the two programs that the shell had started.
    assert len(identities) >= 5
    if ending.startswith("SIG"):
        assert all(identity.is_alive() for identity in identities)
        process.send_signal(signal.Signals[ending])
    process.wait(timeout=60)
    wait_until_gone(identities)
    wait_until_empty(run_folder)


def leave_behind(runs: Path, *entries: dict[str, object]) -> Path:
    """A folder as a dead run leaves it when even its guardian was killed."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder = runs / str(dead.pid)
    folder.mkdir()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (folder / "owner.json").write_text(json.dumps({"pid": dead.pid, "start_ticks": 1, "boot": boot}))
    # The last line is cut short: the run was killed while it wrote it.
    (folder / "ledger.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"pid": 12')
    return folder


def test_next_run_removes_what_a_dead_one_left_and_no_stranger(run_folder: Path) -> None:
    survivor = subprocess.Popen(["sleep", "600"], start_new_session=True)
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    alive = ProcessIdentity.of(survivor.pid)
    assert alive is not None
    leave_behind(
        run_folder,
        {"pid": survivor.pid, "start_ticks": alive.start_ticks, "name": "left"},
        {"pid": stranger.pid, "start_ticks": alive.start_ticks - 1000, "name": "pid given to another"},
    )
    run = Run(run_folder)
    try:
        assert run.removed_leftovers == [f"left (pid {survivor.pid})"]
        assert survivor.wait(timeout=10) == -signal.SIGKILL
        assert stranger.poll() is None
        assert [folder.name for folder in run_folder.iterdir()] == [run.folder.name]
    finally:
        run.close()
        stranger.kill()
        stranger.wait()


def test_run_that_is_alive_is_left_alone(run_folder: Path) -> None:
    process, identities = start_run(run_folder, "SIGKILL")
    try:
        assert remove_leftovers(run_folder) == []
        assert all(identity.is_alive() for identity in identities)
    finally:
        process.kill()
        process.wait()
    wait_until_gone(identities)


def test_two_runs_share_neither_addresses_nor_folders(run_folder: Path) -> None:
    first, second = Run(run_folder), Run(run_folder)
    try:
        assert first.folder != second.folder
        assert first.block.prefix != second.block.prefix
        assert first.block.claim_port([1]) != first.block.claim_port([1])
    finally:
        second.close()
        first.close()


def test_closed_run_leaves_no_folder_outside(run_folder: Path) -> None:
    run = Run(run_folder)
    outside = run.memory_folder("log", room_bytes=1)
    assert outside.is_dir()
    run.close()
    assert not outside.exists()


def test_failed_test_shows_the_log_of_its_service(run_folder: Path) -> None:
    test = run_folder / "test_that_fails.py"
    test.write_text("def test_it(redis_url):\n    assert False, 'on purpose'\n")
    (run_folder / "conftest.py").write_text('pytest_plugins = ["harness.fixtures"]\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", run_folder, test],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        cwd=run_folder,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "on purpose" in done.stdout
    assert "redis (call)" in done.stdout
    assert "Ready to accept connections" in done.stdout
