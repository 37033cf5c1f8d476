"""A thread that keeps a lease alive while the work goes on."""

import threading
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import DBAPIError

from penstock_server.jobs.leases import Lease, LeaseLost, LeaseTable
from penstock_workers.outcomes import Cancelled, Stopping

_log = structlog.get_logger(__name__)
_BEATS_A_LEASE = 4


class Heartbeat:
    """Extends a lease in the background; `check` tells the work when it must stop."""

    def __init__(self, leases: LeaseTable, lease: Lease, *, stopping: threading.Event) -> None:
        self._leases = leases
        self._lease = lease
        self._stopping = stopping
        self._ended = threading.Event()
        self._is_lost = False
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """Raises LeaseLost, Cancelled or Stopping; call it between steps that can be repeated."""
        if self._is_lost:
            raise LeaseLost
        if self._is_cancelled:
            raise Cancelled
        if self._stopping.is_set():
            raise Stopping

    def _beat(self) -> None:
        while not self._ended.wait(self._lease.seconds / _BEATS_A_LEASE):
            try:
                self._is_cancelled = self._leases.heartbeat(self._lease)
            except LeaseLost:
                self._is_lost = True
                return
            except DBAPIError as error:
                # The lease may run out meanwhile; whether it did is for the catalog to say when it is back.
                _log.warning("lease.heartbeat_failed", job_id=str(self._lease.job_id), reason=type(error).__name__)
