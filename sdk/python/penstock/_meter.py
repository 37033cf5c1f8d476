"""What a loader has done so far, for its user and for the Live page."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters since the loader was made, and where it stands."""

    samples: int = 0
    bytes: int = 0
    batches: int = 0
    wait_seconds: float = 0.0
    decode_seconds: float = 0.0
    errors: int = 0
    epoch: int = 0
    step: int = 0
    steps: int = 0


class Meter:
    """Written by the training thread, read by the telemetry thread."""

    def __init__(self) -> None:
        # A signal handler may ask for the stats while this thread counts.
        self._lock = threading.RLock()
        self._totals = Totals()
        self._waiting_since: float | None = None

    def begin_wait(self) -> None:
        """The user asked for a batch."""
        with self._lock:
            self._waiting_since = time.monotonic()

    def end_wait(self) -> None:
        """The user has a batch, or an error."""
        with self._lock:
            if self._waiting_since is not None:
                waited = time.monotonic() - self._waiting_since
                self._totals = replace(self._totals, wait_seconds=self._totals.wait_seconds + waited)
                self._waiting_since = None

    def stand(self, *, epoch: int, step: int, steps: int) -> None:
        """Where the loader stands now."""
        with self._lock:
            self._totals = replace(self._totals, epoch=epoch, step=step, steps=steps)

    def count_batch(self, *, samples: int, byte_count: int, decode_seconds: float) -> None:
        """A batch was handed out."""
        with self._lock:
            totals = self._totals
            self._totals = replace(
                totals,
                batches=totals.batches + 1,
                samples=totals.samples + samples,
                bytes=totals.bytes + byte_count,
                decode_seconds=totals.decode_seconds + decode_seconds,
            )

    def count_error(self) -> None:
        """The user got an error instead of a batch."""
        with self._lock:
            self._totals = replace(self._totals, errors=self._totals.errors + 1)

    def totals(self) -> Totals:
        """All counters; a wait that is under way counts up to now."""
        with self._lock:
            if self._waiting_since is None:
                return self._totals
            waited = time.monotonic() - self._waiting_since
            return replace(self._totals, wait_seconds=self._totals.wait_seconds + waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Current values of the native engine."""

    ready_batches: int = 0
    window_bytes: int = 0
    inflight_bytes: int = 0
    request_p50_ms: float = 0.0
    request_p99_ms: float = 0.0
    retries: int = 0

    def with_ready(self, more_batches: int) -> "Gauges":
        """The same with batches that wait behind the engine."""
        return replace(self, ready_batches=self.ready_batches + more_batches)

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> "Gauges":
        """Read `Engine.stats()`; what a build of the core does not count stays 0."""
        request = stats.get("request") or {}
        return cls(
            ready_batches=int(stats.get("ready_batches", 0)),
            window_bytes=int(stats.get("window_bytes", 0)),
            inflight_bytes=int(stats.get("inflight_bytes", 0)),
            request_p50_ms=float(request.get("p50_ms", 0.0)),
            request_p99_ms=float(request.get("p99_ms", 0.0)),
            retries=int(stats.get("retries", 0)),
        )
