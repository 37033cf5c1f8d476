"""Tells the server how the loader is doing, and never lets the loader feel it."""

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from penstock._errors import APIError, PenstockError
from penstock._meter import Gauges, Meter, Totals
from penstock._models import RegisteredLoader
from penstock._ranks import Ranks
from penstock._reading import read
from penstock._subset import LoadedSubset
from penstock._transport import Transport
from penstock._version import __version__
from penstock.contract.telemetry import POINT_INTERVAL_SECONDS, LoaderPoint

_log = logging.getLogger("penstock.telemetry")

MOST_KEPT_POINTS = 150
_POINTS_A_REQUEST = 50
_END_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_RETRY_SECONDS = 10.0

_shown_urls: set[str] = set()


class Telemetry:
    """A thread that measures every two seconds and sends when it can; what does not fit is dropped."""

    def __init__(
        self,
        transport: Transport,
        registration: Mapping[str, Any],
        meter: Meter,
        *,
        gauges: Callable[[], Gauges],
        interval_seconds: float = POINT_INTERVAL_SECONDS,
    ) -> None:
        self._transport = transport
        self._registration = registration
        self._meter = meter
        self._read_gauges = gauges
        self._interval_seconds = interval_seconds
        self._points: deque[LoaderPoint] = deque(maxlen=MOST_KEPT_POINTS)
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._failure: str | None = None
        self._loader_id: str | None = None
        self._is_refused = False
        self._next_try = 0.0
        self._last = (time.monotonic(), meter.totals(), Gauges())
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="penstock-telemetry", daemon=True)
        self._thread.start()

    def fail(self, message: str) -> None:
        """Remember why the loader failed; told when it is closed."""
        self._failure = message[:500]

    def signal_stop(self) -> None:
        """Let the last point be sent, within one second."""
        if self._pid == os.getpid() and not self._stopping.is_set():
            self._deadline = time.monotonic() + _END_SECONDS
            self._stopping.set()

    def join(self, deadline: float) -> None:
        """Wait for the last point, until this time of the monotonic clock at the most; a server that hangs is left."""
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, min(deadline, self._deadline) - time.monotonic()))

    def stop(self) -> None:
        """Send the last point; gives up after one second."""
        self.signal_stop()
        self.join(self._deadline)

    def _run(self) -> None:
        transport = self._transport.sibling(timeout_seconds=_REQUEST_SECONDS)
        try:
            self._attempt(transport)
            while not self._stopping.wait(self._interval_seconds):
                self._measure()
                self._attempt(transport)
            self._measure()
            transport.close()
            transport = self._transport.sibling(timeout_seconds=max(0.1, self._deadline - time.monotonic()))
            self._next_try = 0.0
            self._attempt(transport)
            self._say_goodbye(transport)
        except Exception:
            _log.debug("telemetry ended", exc_info=True)
        finally:
            transport.close()

    def _measure(self) -> None:
        now, totals = time.monotonic(), self._meter.totals()
        before, old, old_gauges = self._last
        try:
            gauges = self._read_gauges()
        except Exception:
            # An engine that is being closed has no gauges any more.
            gauges = old_gauges
        self._last = (now, totals, gauges)
        self._points.append(_point(now - before, old, totals, gauges, retries=gauges.retries - old_gauges.retries))

    def _attempt(self, transport: Transport) -> None:
        if self._is_refused or time.monotonic() < self._next_try:
            return
        try:
            self._send(transport)
        except APIError as error:
            # A token that may not, or a server that has forgotten this loader: asking again changes the second only.
            self._is_refused = error.status in (401, 403)
            self._loader_id = None if error.status == 404 else self._loader_id
            self._next_try = time.monotonic() + _RETRY_SECONDS
            _log.debug("telemetry refused: %s", error)
        except PenstockError as error:
            self._next_try = time.monotonic() + _RETRY_SECONDS
            _log.debug("telemetry not sent: %s", error)

    def _send(self, transport: Transport) -> None:
        if self._loader_id is None:
            answer = read(RegisteredLoader, transport.post("/loaders", dict(self._registration)))
            self._loader_id = answer.id
            self._show(answer.live_url)
        while self._points and time.monotonic() < self._deadline:
            count = min(len(self._points), _POINTS_A_REQUEST)
            batch = [self._points[index] for index in range(count)]
            transport.post(f"/loaders/{self._loader_id}/points", {"points": [point.to_json() for point in batch]})
            for _ in batch:
                self._points.popleft()

    def _say_goodbye(self, transport: Transport) -> None:
        if self._loader_id is None or self._is_refused or time.monotonic() >= self._deadline:
            return
        body = {"state": "ended"} if self._failure is None else {"state": "failed", "message": self._failure}
        try:
            transport.post(f"/loaders/{self._loader_id}/end", body)
        except PenstockError as error:
            _log.debug("telemetry not sent: %s", error)

    def _show(self, live_url: str) -> None:
        _log.info("live at %s", live_url)
        if self._registration["rank"] == 0 and live_url not in _shown_urls:
            _shown_urls.add(live_url)
            sys.stderr.write(f"penstock: watch this loader at {live_url}\n")
            sys.stderr.flush()


def registration_body(subset: LoadedSubset, *, run: str, ranks: Ranks, batch_size: int, output: str) -> dict[str, Any]:
    """The body of POST /loaders for a loader of this process."""
    return {
        "run": run,
        "dataset": subset.dataset,
        "version": subset.version,
        "split": f"{subset.split}@{subset.split_version}",
        "subset": subset.subset,
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "batch_size": batch_size,
        "sample_count": subset.count,
        "sdk_version": __version__,
        "output": output,
    }


def _point(seconds: float, old: Totals, new: Totals, gauges: Gauges, *, retries: int) -> LoaderPoint:
    return LoaderPoint(
        at=datetime.now(UTC),
        seconds=seconds,
        epoch=new.epoch,
        step=new.step,
        steps=new.steps,
        samples=new.samples - old.samples,
        bytes=new.bytes - old.bytes,
        batches=new.batches - old.batches,
        # A wait under way is counted as it grows, and rounding must not make a share above one.
        wait_seconds=min(seconds, max(0.0, new.wait_seconds - old.wait_seconds)),
        decode_seconds=max(0.0, new.decode_seconds - old.decode_seconds),
        ready_batches=gauges.ready_batches,
        window_bytes=gauges.window_bytes,
        inflight_bytes=gauges.inflight_bytes,
        request_p50_ms=gauges.request_p50_ms,
        request_p99_ms=gauges.request_p99_ms,
        retries=max(0, retries),
        errors=new.errors - old.errors,
    )
