"""Processes that cannot outlive the run that started them, and that a later run can tell apart from strangers."""

import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError

STOP_SECONDS = 40
# A tenth of the weight of others.
_LATER = 10


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


def kill_leftover(identity: ProcessIdentity) -> bool:
    """Kill a recorded process and its group; true when it was still there."""
    if not identity.is_alive():
        return False
    with suppress(ProcessLookupError):
        os.killpg(identity.pid, signal.SIGKILL)
    _wait_until(lambda: not identity.is_alive(), seconds=10)
    return True


def marked_processes(marker: str) -> list[ProcessIdentity]:
    """Every process that was started with `NAME=value` in its environment, in whatever group or session it is."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = [ProcessIdentity.of(pid) for pid in pids if _has_marker(Path(f"/proc/{pid}"), marker)]
    return [identity for identity in found if identity is not None and identity.is_alive()]


def kill_marked(marker: str) -> list[ProcessIdentity]:
    """Kill them all, and those that they start meanwhile; returns what was there."""
    killed: dict[int, ProcessIdentity] = {}

    def are_gone() -> bool:
        alive = marked_processes(marker)
        for identity in alive:
            killed[identity.pid] = identity
            with suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGKILL)
        return not alive

    _wait_until(are_gone, seconds=10)
    return list(killed.values())


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

    def __init__(
        self, name: str, popen: subprocess.Popen[bytes], log_path: Path, *, is_shown_on_failure: bool = False
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.is_shown_on_failure = is_shown_on_failure
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

    def give_way(self) -> None:
        """From now on all others come first on the cores that it shares with them."""
        os.setpriority(os.PRIO_PGRP, self.pid, _LATER)
        # Where the kernel gives every session the same share of a core, niceness counts only inside of one.
        of_session = Path(f"/proc/{self.pid}/autogroup")
        if of_session.exists():
            of_session.write_text(str(_LATER))

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the whole group, and wait until the kernel has taken it."""
        self.signal(signal.SIGKILL)
        self.exit_code = self._popen.wait(timeout=30)

    def stop(self, *, with_signal: int = signal.SIGTERM, seconds: float = STOP_SECONDS) -> int:
        """Ask the program alone, as a supervisor does, and return its exit code; a deaf one is killed and raises."""
        self._popen.send_signal(with_signal)
        self.signal(signal.SIGCONT)
        try:
            self.exit_code = self._popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            name = signal.Signals(with_signal).name
            message = f"{self.name} was still there {seconds:.0f} s after {name}\n{self.log_tail()}"
            raise HarnessError(message) from None
        return self.exit_code

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

    def wait_for(self, pattern: re.Pattern[str], *, seconds: float) -> re.Match[str]:
        """Wait until what it has printed matches."""
        found: list[re.Match[str]] = []

        def has_printed() -> bool:
            found.extend(pattern.finditer(self.output()))
            return bool(found)

        self.wait_ready(has_printed, seconds=seconds)
        return found[0]

    def output(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        if not self.log_path.exists():
            return f"(no log at {self.log_path})"
        with self.log_path.open(errors="replace") as log:
            tail = "".join(deque(log, maxlen=lines))
        return f"--- last {lines} lines of {self.log_path} ---\n{tail}"
