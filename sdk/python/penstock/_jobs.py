"""A job on the server, and waiting for it."""

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO
from urllib.parse import quote

from penstock._errors import JobFailed, PenstockError, ServerFailure, Timeout, TransportError
from penstock._models import JobInfo
from penstock._reading import read
from penstock._transport import Transport

_FIRST_POLL_SECONDS = 0.2
_LAST_POLL_SECONDS = 2.0
# A server that restarts (an update, a crash) finds its jobs again; waiting outlives that.
_OUTAGE_SECONDS = 60.0


class Job:
    """A job, as it was when last asked for.

    >>> job = client.dataset("patches").ingest("slides/")
    >>> job.wait().result["sample_count"]
    3000
    """

    def __init__(self, transport: Transport, info: JobInfo) -> None:
        self._transport = transport
        self.info = info

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.state!r})"

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def state(self) -> str:
        """queued, running, succeeded, failed or cancelled."""
        return self.info.state

    @property
    def result(self) -> dict[str, Any]:
        """What it made; empty until it succeeded."""
        return dict(self.info.result or {})

    def refresh(self) -> "Job":
        """Ask the server how it stands now."""
        self.info = read(JobInfo, self._transport.get(f"/jobs/{quote(self.id, safe='')}"))
        return self

    def cancel(self) -> "Job":
        """Ask for it to be stopped; what it has published stays."""
        self._transport.post(f"/jobs/{quote(self.id, safe='')}/cancel")
        return self.refresh()

    def wait(
        self,
        timeout_seconds: float | None = None,
        *,
        progress: bool | None = None,
        on_change: Callable[[JobInfo], None] | None = None,
    ) -> "Job":
        """Wait until it is finished and return it.

        Args:
            timeout_seconds: Give up waiting (the job goes on) after so long.
            progress: Draw a progress bar on stderr; by default when stderr is a terminal.
            on_change: Called with every new state that differs from the one before.

        Raises:
            JobFailed: It failed or was cancelled.
            Timeout: It still runs after `timeout_seconds`.
        """
        bar = ProgressBar(sys.stderr) if (sys.stderr.isatty() if progress is None else progress) else None
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = _FIRST_POLL_SECONDS
        try:
            while not self.info.is_finished:
                if bar:
                    bar.draw(self.info)
                if deadline is not None and time.monotonic() >= deadline:
                    raise Timeout(f"job {self.id} is still {self.state} after {timeout_seconds:g} s; it goes on")
                before = self.info
                time.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
                pause = min(pause * 1.3, _LAST_POLL_SECONDS)
                self._refresh_patiently()
                if on_change and self.info != before:
                    on_change(self.info)
        finally:
            if bar:
                bar.finish(self.info)
        if self.state != "succeeded":
            raise self._failure()
        return self

    def _refresh_patiently(self) -> None:
        give_up_at = time.monotonic() + _OUTAGE_SECONDS
        while True:
            try:
                self.refresh()
            except (TransportError, ServerFailure):
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(_LAST_POLL_SECONDS)
            else:
                return

    def _failure(self) -> PenstockError:
        error = self.info.error
        detail = error.detail if error else "no reason was given"
        return JobFailed(
            f"job {self.id} {self.state}" + (f": {detail}" if self.state == "failed" else ""),
            job_id=self.id,
            code=error.code if error else None,
        )


class ProgressBar:
    """One line of a terminal that is drawn over and over."""

    _WIDTH = 30

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn_characters = 0

    def draw(self, info: JobInfo) -> None:
        """Show how far the job is."""
        progress = info.progress
        if progress is None or not progress.total:
            self._line(f"{info.kind}: {info.state}")
            return
        share = min(1.0, progress.done / progress.total)
        bar = "#" * round(share * self._WIDTH)
        phase = progress.phase or info.state
        self._line(
            f"{info.kind}: {phase:8} [{bar:<{self._WIDTH}}] {progress.done:,}/{progress.total:,} {progress.unit}"
        )

    def finish(self, info: JobInfo) -> None:
        """Draw the last state and leave the line."""
        self._line(f"{info.kind}: {info.state}")
        self._stream.write("\n")
        self._stream.flush()

    def _line(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._drawn_characters))
        self._stream.flush()
        self._drawn_characters = len(text)
