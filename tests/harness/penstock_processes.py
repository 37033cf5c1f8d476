"""Penstock's own programs in a test: servers, workers and scripts, started as a user starts them."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.processes import Process
from harness.run import Run

PENSTOCK = Path(sys.executable).with_name("penstock")
LOGIN_LINK = re.compile(r"(http://\S+)/login#code=(\S+)(?=\s)")
START_SECONDS = 150


@dataclass(frozen=True)
class Server:
    """A `penstock up` that answers, with what it printed: its address and the code of its first login link."""

    process: Process
    url: str
    code: str

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def folder_settings(folder: Path, **more: str) -> dict[str, str]:
    """Settings that keep a server and all that belongs to it in one folder."""
    return {
        "PENSTOCK_DATA_FOLDER": str(folder / "data"),
        "PENSTOCK_STATE_FOLDER": str(folder / "state"),
        "PENSTOCK_CACHE_FOLDER": str(folder / "cache"),
        "PENSTOCK_INGEST__ALLOWED_ROOTS": json.dumps([str(folder)]),
        **more,
    }


def start_server(run: Run, settings: Mapping[str, str], *arguments: str) -> Server:
    """On a port of its own, and waited for."""
    process = start_program(run, "server", [PENSTOCK, "up", "--port", "0", *arguments], settings)
    try:
        link = process.wait_for(LOGIN_LINK, seconds=START_SECONDS)
    except HarnessError:
        process.kill()
        raise
    return Server(process, url=link[1], code=link[2])


def start_worker(run: Run, settings: Mapping[str, str]) -> Process:
    return start_program(run, "worker", [PENSTOCK, "worker"], settings)


def start_program(run: Run, name: str, argv: Sequence[str | Path], settings: Mapping[str, str]) -> Process:
    """`settings` are its only PENSTOCK_ variables; a test that fails while it runs shows what it printed."""
    # Each with a log of its own: the link of an earlier server must not be taken for that of the next.
    number = sum(process.name.startswith(f"{name}-") for process in run.processes)
    return run.spawn(f"{name}-{number}", argv, env=settings, is_shown_on_failure=True)
