"""A run: its folder, its addresses and the processes in it; everything is gone when it ends, however it ends.

Three things see to that: `close` (also at exit), a death signal on every process, and a guardian process that waits
for the run's end and then removes what the death signal cannot reach, such as children of our processes: a mark in
their environment tells them. What all three miss (the guardian was killed too) is removed by the next run.
"""

import atexit
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.addresses import LoopbackBlock
from harness.errors import HarnessError
from harness.processes import Process, ProcessIdentity, kill_leftover, kill_marked, marked_processes

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "build" / "test-run"
_MARKER = "PENSTOCK_TEST_RUN"
_SHARED_MEMORY = Path("/dev/shm")
_KEEP = "PENSTOCK_KEEP_RUN"
_open_runs: list["Run"] = []


class Run:
    def __init__(self, runs: Path = RUNS) -> None:
        self.runs = runs
        self.removed_leftovers = remove_leftovers(runs)
        self.folder = _new_run_folder(runs)
        self.block = LoopbackBlock(str(self.folder))
        self.processes: list[Process] = []
        self._owner_pid = os.getpid()
        self._outside: list[Path] = []
        # PDEATHSIG fires when the *thread* that forked ends, so all forks happen on one thread that lasts.
        self._forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="harness-forker")
        self._is_closed = False
        self._guardian = _start_guardian(runs, self.folder)
        _open_runs.append(self)
        atexit.register(self.close)

    def service_folder(self, name: str, *, user: str | None = None) -> Path:
        """A folder for one service; given to `user` (and put where that user can get to) when one is named."""
        folder = self.folder / name
        if user is not None and not _others_can_reach(self.folder):
            folder = self._outside_folder(name, parent=None)
        folder.mkdir(parents=True, exist_ok=True)
        if user is not None:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
            folder.chmod(0o700)
        return folder

    def memory_folder(self, name: str, *, room_bytes: int) -> Path:
        """A folder in memory, where a sync to disk costs nothing; an ordinary one when there is no room for it."""
        if _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > 4 * room_bytes:
            return self._outside_folder(name, parent=_SHARED_MEMORY)
        return self.service_folder(name)

    def environment(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The caller's variables with its Penstock settings replaced by these, and the mark of this run."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        return {**kept, **(settings or {}), _MARKER: str(self.folder)}

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        death_signal: str = "KILL",
        is_shown_on_failure: bool = False,
    ) -> Process:
        """Start a program that is killed with us, has its own group and writes stdout and stderr to `<name>.log`."""
        log_path = self.folder / "logs" / f"{name}.log"
        log_path.parent.mkdir(exist_ok=True)
        command = [*as_user(user), "setpriv", "--pdeathsig", death_signal, "--", *map(str, argv)]
        environment = self.environment(env)

        def fork() -> subprocess.Popen[bytes]:
            with log_path.open("ab") as log:
                return subprocess.Popen(
                    command,
                    env=environment,
                    cwd=cwd or self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

        popen = self._forker.submit(fork).result()
        process = Process(name, popen, log_path, is_shown_on_failure=is_shown_on_failure)
        identity = ProcessIdentity.of(process.pid)
        if identity is not None:
            self._record({"pid": identity.pid, "start_ticks": identity.start_ticks, "name": name})
        self.processes.append(process)
        return process

    def members(self) -> set[ProcessIdentity]:
        """Every process of this run that is alive, the children of those that we started too."""
        # PostgreSQL writes its title over its environment, and so over the mark.
        started = {ProcessIdentity.of(process.pid) for process in self.processes if process.is_running}
        return {identity for identity in started if identity is not None}.union(marked_processes(_mark(self.folder)))

    def close(self) -> None:
        # A forked child inherits the atexit hook but owns nothing.
        if self._is_closed or os.getpid() != self._owner_pid:
            return
        self._is_closed = True
        _open_runs.remove(self)
        for process in reversed(self.processes):
            process.kill()
        kill_marked(_mark(self.folder))
        self._forker.shutdown()
        self.block.release()
        atexit.unregister(self.close)
        if os.environ.get(_KEEP) != "1":
            for folder in (*self._outside, self.folder):
                shutil.rmtree(folder, ignore_errors=True)
        self._guardian.communicate()

    def _outside_folder(self, name: str, *, parent: Path | None) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-", dir=parent))
        self._outside.append(folder)
        self._record({"folder": str(folder)})
        return folder

    def _record(self, entry: Mapping[str, str | int]) -> None:
        with (self.folder / "ledger.jsonl").open("a") as ledger:
            ledger.write(json.dumps(entry) + "\n")


def current_run() -> Run:
    """The run of this process that was opened first: tests of this harness open more inside it."""
    if not _open_runs:
        raise HarnessError("no run is open in this process: the test has to ask for the fixture `services`")
    return _open_runs[0]


def _mark(folder: Path) -> str:
    return f"{_MARKER}={folder}"


def _start_guardian(runs: Path, folder: Path) -> subprocess.Popen[bytes]:
    """It reads a pipe that only this process writes to, and so learns of its end in the moment it comes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    # A run inside a run: the outer one's mark would have the guardian killed before its work is done.
    environment.pop(_MARKER, None)
    return subprocess.Popen(
        [sys.executable, "-m", "harness.run", runs, folder],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guard(runs: Path, folder: Path) -> None:
    sys.stdin.read()
    deadline = time.monotonic() + 30
    # The pipe closes a moment before the process is gone.
    while _owner_is_alive(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    remove_leftovers(runs)


def as_user(user: str | None) -> list[str]:
    """The words before a command that make it run as this account of the machine."""
    return [] if user is None else ["setpriv", "--reuid", user, "--regid", _group(user), "--init-groups", "--"]


def _group(user: str) -> str:
    return str(pwd.getpwnam(user).pw_gid)


def remove_leftovers(runs: Path = RUNS) -> list[str]:
    """Kill and delete what dead runs of this checkout left; names what was still running."""
    killed: list[str] = []
    if not runs.is_dir():
        return killed
    for folder in sorted(runs.iterdir()):
        if _owner_is_alive(folder):
            continue
        ledger = _ledger(folder)
        for entry in ledger if _was_this_boot(folder) else []:
            if "pid" in entry and kill_leftover(ProcessIdentity(int(entry["pid"]), int(entry["start_ticks"]))):
                killed.append(f"{entry['name']} (pid {entry['pid']})")
        killed += [f"a child of its processes (pid {child.pid})" for child in kill_marked(_mark(folder))]
        for entry in ledger:
            if "folder" in entry:
                shutil.rmtree(str(entry["folder"]), ignore_errors=True)
        if os.environ.get(_KEEP) != "1":
            shutil.rmtree(folder, ignore_errors=True)
    return killed


def _new_run_folder(runs: Path) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    me = ProcessIdentity.of(os.getpid())
    if me is None:
        raise HarnessError("/proc is not there: the test services run on Linux only")
    # Several runs of one process (a test of this harness does that) get a suffix.
    number = 0
    while (folder := runs / (f"{me.pid}-{number}" if number else str(me.pid))).exists():
        number += 1
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=runs))
    draft.chmod(0o755)
    owner = {"pid": me.pid, "start_ticks": me.start_ticks, "boot": _boot_id()}
    (draft / "owner.json").write_text(json.dumps(owner))
    # Renamed when complete: a run that starts at the same moment must not take it for an orphan.
    draft.rename(folder)
    return folder


def _owner_is_alive(folder: Path) -> bool:
    if folder.name.startswith(".draft-") and time.time() - folder.stat().st_mtime < 60:
        return True
    owner = _owner(folder)
    return (
        owner is not None
        and owner["boot"] == _boot_id()
        and ProcessIdentity(int(owner["pid"]), int(owner["start_ticks"])).is_alive()
    )


def _was_this_boot(folder: Path) -> bool:
    owner = _owner(folder)
    return owner is not None and owner["boot"] == _boot_id()


def _owner(folder: Path) -> dict[str, str | int] | None:
    try:
        owner: dict[str, str | int] = json.loads((folder / "owner.json").read_text())
    except (OSError, ValueError):
        return None
    return owner


def _ledger(folder: Path) -> list[dict[str, str | int]]:
    ledger = folder / "ledger.jsonl"
    # The last line may be cut short: the run was killed while it wrote it.
    return (
        [json.loads(line) for line in ledger.read_text().splitlines() if line.endswith("}")] if ledger.exists() else []
    )


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _others_can_reach(folder: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents))


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), Path(sys.argv[2]))
