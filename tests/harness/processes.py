"""Processes that cannot outlive the run that started them, and that a later run can tell apart from strangers."""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError


@dataclass(frozen=True)
class ProcessIdentity:
    """A pid alone is reused; with its start time since boot it is not."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        fields = _stat_fields(pid)
        return None if fields is None else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        fields = _stat_fields(self.pid)
        return fields is not None and fields[0] != "Z" and int(fields[19]) == self.start_ticks


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; the command before it may hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def kill_leftover(identity: ProcessIdentity, *, marker: str) -> bool:
    """Kill a recorded process and its group; true when anything was still there."""
    if identity.is_alive():
        with suppress(ProcessLookupError):
            os.killpg(identity.pid, signal.SIGKILL)
        _wait_until(lambda: not identity.is_alive(), seconds=10)
        return True
    found = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = _stat_fields(int(entry.name))
        # The leader is gone, its group may not be; the marker proves that the group is still that of the run.
        if fields is None or fields[0] == "Z" or int(fields[2]) != identity.pid or not _has_marker(entry, marker):
            continue
        with suppress(ProcessLookupError):
            os.kill(int(entry.name), signal.SIGKILL)
            found = True
    return found


def _has_marker(process: Path, marker: str) -> bool:
    try:
        return marker.encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Process:
    """One started program, the leader of its own group, with its output in a file."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._popen = popen
        self.pid = popen.pid
        self.exit_code: int | None = None

    @property
    def is_running(self) -> bool:
        self.exit_code = self._popen.poll()
        return self.exit_code is None

    @property
    def cpu_seconds(self) -> float:
        """What it has used of the CPU so far."""
        fields = _stat_fields(self.pid)
        if fields is None:
            raise HarnessError(f"{self.name} is gone, its CPU time with it")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the whole group, and wait until the kernel has taken it."""
        self.signal(signal.SIGKILL)
        self.exit_code = self._popen.wait(timeout=30)

    def stop(self, *, with_signal: int = signal.SIGTERM, seconds: float = 10) -> None:
        """Ask politely, then kill."""
        self.signal(with_signal)
        self.signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=seconds)
        self.kill()

    def signal(self, number: int) -> None:
        # Popen keeps the pid until it has been waited for, so the group cannot be a stranger's.
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait_ready(self, is_ready: Callable[[], bool], *, seconds: float, every_seconds: float = 0.1) -> float:
        """Poll until it is ready and return how long that took; a dead or late process raises with its log tail."""
        started = time.monotonic()
        while not is_ready():
            if not self.is_running:
                raise HarnessError(f"{self.name} ended with code {self.exit_code} while starting\n{self.log_tail()}")
            if time.monotonic() - started > seconds:
                raise HarnessError(f"{self.name} was not ready after {seconds:.0f} s\n{self.log_tail()}")
            time.sleep(every_seconds)
        return time.monotonic() - started

    def log_tail(self, lines: int = 60) -> str:
        if not self.log_path.exists():
            return f"(no log at {self.log_path})"
        with self.log_path.open(errors="replace") as log:
            tail = "".join(deque(log, maxlen=lines))
        return f"--- last {lines} lines of {self.log_path} ---\n{tail}"
