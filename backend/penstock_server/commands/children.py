"""Child processes of `penstock up`: the worker, started again when it dies or freezes, and the maker of the demo."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

import structlog

from penstock_server.child import SIGN_SECONDS
from penstock_server.commands.lifeline import Lifeline
from penstock_server.settings import Settings

FIRST_PAUSE_SECONDS = 1.0
# With FROZEN_SECONDS and a start it stays below 30 s, in which the work of a lost worker is to be taken over.
LONGEST_PAUSE_SECONDS = 10.0
# A child that lived this long was healthy: the next pause is short again.
HEALTHY_SECONDS = 30.0
STOP_SECONDS = 2.0
# Silence of a kept child: it is doubted first, and then killed. Before its first sign it may load for longer.
DOUBTED_SECONDS = 3.0
FROZEN_SECONDS = 10.0
LOADING_SECONDS = 60.0

_log = structlog.get_logger(__name__)


def child_environment(settings: Settings, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Arguments of the command reach the children as settings."""
    return {
        **os.environ,
        "PENSTOCK_DATA_FOLDER": str(settings.data_folder),
        "PENSTOCK_STATE_FOLDER": str(settings.state_folder),
        "PENSTOCK_SERVER__PORT": str(settings.server.port),
        **(more or {}),
    }


class Child:
    """A module that runs as a process of its own and never outlives this one.

    One that is kept gives signs of life and is started again whenever it has ended or given none for too long.
    """

    def __init__(
        self, name: str, module: str, *, environment: Mapping[str, str], is_kept: bool, is_on_stderr: bool = False
    ) -> None:
        self._name = name
        self._command = [sys.executable, "-m", "penstock_server.child", str(os.getpid()), module]
        self._environment = dict(environment)
        self._is_kept = is_kept
        self._stdout = sys.stderr.fileno() if is_on_stderr else None
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_begun = False
        self._silent_seconds = 0.0
        self._lock = threading.Lock()
        # The process is bound to the thread that made it: this thread lives as long as the child is wanted.
        self._thread = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def problem(self) -> str | None:
        """None while a kept child runs and gives signs of life, else what is wrong with it."""
        if self.pid is None:
            return f"the {self._name} does not run; it is started again in a moment"
        if not self._has_begun:
            return f"the {self._name} is still starting"
        if self._silent_seconds >= DOUBTED_SECONDS:
            return f"the {self._name} has given no sign of life for {self._silent_seconds:.0f} s"
        return None

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        with self._lock:
            self._stopping.set()
            self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ends the child: asked first, killed when it does not listen."""
        self.ask_to_stop()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive() and self._process is not None:
            _log.warning("child.killed", child=self._name, pid=self._process.pid)
            self._signal(signal.SIGKILL)
            self._thread.join(1.0)

    def _signal(self, number: signal.Signals) -> None:
        """To the child and all that it started: it leads a group of its own."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _watch(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            started_at = time.monotonic()
            code = self._run_once()
            if self._stopping.is_set() or (not self._is_kept and code == 0):
                return
            if not self._is_kept:
                _log.error("child.failed", child=self._name, exit_code=code)
                return
            if time.monotonic() - started_at >= HEALTHY_SECONDS:
                pause_seconds = FIRST_PAUSE_SECONDS
            _log.error("child.died", child=self._name, exit_code=code, starts_again_in_seconds=pause_seconds)
            self._stopping.wait(pause_seconds)
            pause_seconds = min(pause_seconds * 2, LONGEST_PAUSE_SECONDS)

    def _run_once(self) -> int:
        with Lifeline() as lifeline:
            with self._lock:
                if self._stopping.is_set():
                    return 0
                self._has_begun, self._silent_seconds = False, 0.0
                # A group of its own: Ctrl-C in a terminal reaches the server alone, which stops its children in order.
                self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                    [*self._command, *(lifeline.child_arguments if self._is_kept else ())],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._stdout,
                    pass_fds=[lifeline.child_handle] if self._is_kept else [],
                    process_group=0,
                )
            lifeline.hand_over()
            if self._is_kept:
                self._end_when_frozen(self._process, lifeline)
            return self._process.wait()

    def _end_when_frozen(self, process: subprocess.Popen[bytes], lifeline: Lifeline) -> None:
        """Returns when the child has ended, or has been killed because it gave no sign of life."""
        while (heard := lifeline.listen(SIGN_SECONDS)) != "end":
            if heard == "sign":
                self._has_begun, self._silent_seconds = True, 0.0
                continue
            # Counted in looks, not by the clock: when this process slept too (a paused machine), nobody was silent.
            self._silent_seconds += SIGN_SECONDS
            if self._silent_seconds >= (FROZEN_SECONDS if self._has_begun else LOADING_SECONDS):
                _log.error("child.frozen", child=self._name, pid=process.pid, silent_seconds=self._silent_seconds)
                self._signal(signal.SIGKILL)
                return
