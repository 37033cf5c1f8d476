"""Nothing of a run is left, however it ends: the runs here are pytest processes of their own."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.processes import Process, ProcessIdentity
from harness.run import ROOT, Run, remove_leftovers
from harness.services import Services

TELL_MEMBERS = """
def tell_members(run):
    print("members", json.dumps([[member.pid, member.start_ticks] for member in run.members()]), flush=True)
"""
MEMBERS = re.compile(r"members (\[.*\])\n")
SCRIPT = f"""
import json, sys, time
from pathlib import Path
from harness.postgres import PostgresServer
from harness.redis_server import RedisServer
from harness.run import Run
{TELL_MEMBERS}
run = Run(Path(sys.argv[1]))
services = [RedisServer(run), *([PostgresServer(run)] if "postgres" in sys.argv else [])]
# A child in the group of its parent, and one that has left group and session.
run.spawn("sleeper", ["sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600"])
time.sleep(0.2)
tell_members(run)
ending = sys.argv[2]
if ending == "error":
    raise RuntimeError("a test failed")
if ending == "exit":
    run.close()
    sys.exit(0)
time.sleep(600)
"""

TEST_ON_A_SERVER = f"""
import json, time
from pathlib import Path
import pytest
from harness.penstock_processes import folder_settings, start_server
{TELL_MEMBERS}
@pytest.fixture(scope="session")
def server(services):
    server = start_server(services.run, folder_settings(services.run.folder / "place"))
    while not any("penstock_workers" in Path("/proc", str(pid), "cmdline").read_text() for pid in server.children()):
        time.sleep(0.05)
    tell_members(services.run)
    return server

def test_it(server):
    time.sleep(600)
"""
FAILING_TEST = """
import re, sys
import pytest
from harness.penstock_processes import start_program

TALK = "import time; print('said by a program', flush=True); time.sleep(600)"

@pytest.fixture(scope="session")
def parts(request, services):
    program = start_program(services.run, "program", [sys.executable, "-c", TALK], {})
    program.wait_for(re.compile("said by a program"), seconds=60)
    return request.getfixturevalue("redis_server")

def test_for_which_the_parts_are_made(parts):
    pass

def test_it(parts):
    assert False, "on purpose"
"""


def members_of(process: Process) -> list[ProcessIdentity]:
    told = process.wait_for(MEMBERS, seconds=200)[1]
    return [ProcessIdentity(*pair) for pair in json.loads(told)]


def start_run(services: Services, runs: Path, ending: str, *more: str) -> tuple[Process, list[ProcessIdentity]]:
    script = [sys.executable, "-c", SCRIPT, str(runs), ending, *more]
    number = len(services.run.processes)
    process = services.run.spawn(f"run-{number}", script, env={"PYTHONPATH": str(ROOT / "tests")})
    return process, members_of(process)


def start_pytest(services: Services, folder: Path, test: str, *options: str) -> Process:
    (folder / "test_inside.py").write_text(test)
    (folder / "conftest.py").write_text('pytest_plugins = ["harness.fixtures"]\n')
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *options, str(folder)]
    number = len(services.run.processes)
    return services.run.spawn(f"pytest-{number}", argv, env={"PYTHONPATH": str(ROOT / "tests")}, cwd=folder)


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
def test_services_end_with_their_run(services: Services, run_folder: Path, ending: str) -> None:
    process, members = start_run(services, run_folder, ending, "postgres")
    # Redis, PostgreSQL, a shell and the three programs that the shell had started.
    assert len(members) >= 6
    if ending.startswith("SIG"):
        assert all(member.is_alive() for member in members)
        process.stop(with_signal=signal.Signals[ending])
    wait_until_gone(members)
    wait_until_empty(run_folder)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL", "timeout"])
def test_server_and_its_worker_end_with_pytest(services: Services, run_folder: Path, ending: str) -> None:
    limit = ["-o", "timeout_func_only=true", "-o", f"timeout={1 if ending == 'timeout' else 0}"]
    process = start_pytest(services, run_folder, TEST_ON_A_SERVER, "-s", *limit)
    members = members_of(process)
    # The server and its worker.
    assert len(members) >= 2
    if ending == "timeout":
        process.wait_for(re.compile("Timeout"), seconds=60)
    else:
        assert all(member.is_alive() for member in members)
        process.stop(with_signal=signal.Signals[ending])
    wait_until_gone(members)


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


def test_next_run_removes_what_a_dead_one_left_and_no_stranger(services: Services, run_folder: Path) -> None:
    survivor = services.run.spawn("survivor", ["sleep", "600"])
    stranger = services.run.spawn("stranger", ["sleep", "600"])
    alive = ProcessIdentity.of(survivor.pid)
    assert alive is not None
    folder = leave_behind(
        run_folder,
        {"pid": survivor.pid, "start_ticks": alive.start_ticks, "name": "left"},
        {"pid": stranger.pid, "start_ticks": alive.start_ticks - 1000, "name": "pid given to another"},
    )
    # In no ledger, as the child of a process that is gone; its environment tells whose it was.
    orphan = services.run.spawn("orphan", ["env", f"PENSTOCK_TEST_RUN={folder}", "sh", "-c", "echo up; exec sleep 600"])
    orphan.wait_for(re.compile("up"), seconds=10)
    run = Run(run_folder)
    try:
        assert run.removed_leftovers == [f"left (pid {survivor.pid})", f"a child of its processes (pid {orphan.pid})"]
        for gone in (survivor, orphan):
            assert not gone.is_running
            assert gone.exit_code == -signal.SIGKILL
        assert stranger.is_running
        assert [folder.name for folder in run_folder.iterdir()] == [run.folder.name]
    finally:
        run.close()
        stranger.kill()


def test_run_that_is_alive_is_left_alone(services: Services, run_folder: Path) -> None:
    process, members = start_run(services, run_folder, "SIGKILL")
    try:
        assert remove_leftovers(run_folder) == []
        assert all(member.is_alive() for member in members)
    finally:
        process.kill()
    wait_until_gone(members)


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


def test_failed_test_shows_the_logs_of_its_services_and_programs(services: Services, run_folder: Path) -> None:
    process = start_pytest(services, run_folder, FAILING_TEST)
    shown = process.wait_for(re.compile("1 failed, 1 passed"), seconds=120).string
    assert "on purpose" in shown
    assert "redis (call)" in shown
    assert "Ready to accept connections" in shown
    assert "program-0 (call)" in shown
    assert "said by a program" in shown
