"""Runs one leased piece of work after another and records how each ended."""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID, uuid4

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from penstock.contract.codes import ErrorCode
from penstock_server.composition import Services
from penstock_server.domain.jobs.service import JobService
from penstock_server.errors import DependencyUnavailable, ServerError
from penstock_server.jobs.leases import Lease, LeaseLost, LeaseTable
from penstock_server.models import Job
from penstock_workers.heartbeat import Heartbeat
from penstock_workers.outcomes import Cancelled, Permanent, Stopping, Transient

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

EVENT_INTERVAL_SECONDS = 0.25
CATALOG_PATIENCE_SECONDS = 60.0
RETRY_WAIT_SECONDS = 5.0


@dataclass(slots=True)
class Work:
    """What a task gets: its lease, the process's parts, and the way to report progress."""

    lease: Lease
    heartbeat: Heartbeat
    services: Services
    leases: LeaseTable
    threads: int
    _last_report: float = field(default=0.0)

    def report(self, done: int) -> None:
        """Tell how many samples of the shard are done, at most four times a second; raises as `Heartbeat.check`."""
        now = time.monotonic()
        if now - self._last_report < EVENT_INTERVAL_SECONDS:
            return
        self._last_report = now
        try:
            is_cancelled = self.leases.report(self.lease, done)
            announce(self.services, self.lease.job_id)
        except DBAPIError as error:
            _log.warning("job.report_failed", job_id=str(self.lease.job_id), reason=type(error).__name__)
            return
        if is_cancelled:
            raise Cancelled

    def patiently(self, call: Callable[[], _T]) -> _T:
        """Record a result even when the catalog is away for a moment; the fencing number guards the delay."""
        return patiently(call, check=self.heartbeat.check)


class JobTask(Protocol):
    """One kind of job in three steps; each may run twice or die anywhere."""

    def plan(self, work: Work) -> None: ...

    def write(self, work: Work) -> None: ...

    def publish(self, work: Work) -> None: ...


class Runner:
    """Claims work, keeps its lease alive, and turns every ending into a row."""

    def __init__(
        self,
        services: Services,
        tasks: Mapping[str, JobTask],
        *,
        lease_seconds: float,
        threads: int = 2,
        stopping: threading.Event | None = None,
    ) -> None:
        self.leases = LeaseTable(services.catalog, lease_seconds=lease_seconds)
        self.stopping = stopping or threading.Event()
        self._services = services
        self._tasks = tasks
        self._threads = threads
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    def run_one(self, job_id: UUID | None = None) -> bool:
        """Do one piece of work (of this job, or of any); False when there is none to claim."""
        lease = self.leases.claim(self._owner, job_id)
        if lease is None:
            return False
        log = _log.bind(job_id=str(lease.job_id), phase=lease.phase, ordinal=lease.ordinal, fence=lease.fence)
        log.info("work.claimed", attempt=lease.attempt)
        try:
            with Heartbeat(self.leases, lease, stopping=self.stopping) as heartbeat:
                self._announce(lease)
                self._run(Work(lease, heartbeat, self._services, self.leases, self._threads))
            log.info("work.done")
        except LeaseLost:
            log.warning("work.lease_lost")
            return True
        except Exception as error:
            self._record_ending(lease, error)
        self._announce(lease)
        return True

    def _run(self, work: Work) -> None:
        task = self._tasks[self._kind(work.lease.job_id)]
        step = {"plan": task.plan, "write": task.write, "publish": task.publish}[work.lease.phase]
        step(work)

    def _kind(self, job_id: UUID) -> str:
        with self._services.catalog.unit(is_read_only=True) as unit:
            return unit.session.get_one(Job, job_id).kind

    def _record_ending(self, lease: Lease, error: Exception) -> None:
        try:
            patiently(lambda: self._record(lease, error))
        except LeaseLost:
            _log.warning("work.lease_lost", job_id=str(lease.job_id))
        except DBAPIError as away:
            # The lease runs out by itself and the work is taken over.
            _log.error("work.ending_lost", job_id=str(lease.job_id), reason=type(away).__name__)

    def _record(self, lease: Lease, error: Exception) -> None:
        log = _log.bind(job_id=str(lease.job_id), phase=lease.phase, ordinal=lease.ordinal)
        if isinstance(error, Cancelled):
            self.leases.release(lease)
            self.leases.settle_cancelled(lease.job_id)
        elif isinstance(error, Stopping):
            self.leases.release(lease)
        elif isinstance(error, Permanent):
            log.warning("work.failed", code=error.code, detail=error.detail)
            self.leases.fail(lease, error.code, error.detail, aside=error.aside)
        elif isinstance(error, ServerError) and not _is_passing(error):
            log.warning("work.failed", code=error.code, detail=error.detail)
            self.leases.fail(lease, error.code, error.detail)
        else:
            code, detail = _described(error)
            log.warning("work.attempt_failed", code=code, detail=detail, exc_info=error)
            wait_seconds = RETRY_WAIT_SECONDS * lease.attempt
            if not self.leases.release(lease, wait_seconds=wait_seconds, is_failed_attempt=True):
                self.leases.fail(lease, code, detail)

    def _announce(self, lease: Lease) -> None:
        try:
            announce(self._services, lease.job_id)
        except DBAPIError as error:
            _log.warning("job.announce_failed", job_id=str(lease.job_id), reason=type(error).__name__)


def announce(services: Services, job_id: UUID) -> None:
    """Publish the job as it stands in the catalog now."""
    with services.catalog.unit(is_read_only=True) as unit:
        JobService(unit, services.queue, services.bus).announce(job_id)


def patiently(call: Callable[[], _T], *, check: Callable[[], None] | None = None) -> _T:
    """Repeat `call` while the catalog is away, up to a minute."""
    give_up_at = time.monotonic() + CATALOG_PATIENCE_SECONDS
    wait_seconds = 0.1
    while True:
        try:
            return call()
        except (OperationalError, InterfaceError):
            if time.monotonic() > give_up_at:
                raise
        if check is not None:
            check()
        time.sleep(wait_seconds)
        wait_seconds = min(2.0, wait_seconds * 2)


def _is_passing(error: ServerError) -> bool:
    return isinstance(error, DependencyUnavailable) and error.code != ErrorCode.STORE_FULL


def _described(error: Exception) -> tuple[ErrorCode, str]:
    if isinstance(error, Transient | ServerError):
        return error.code, error.detail
    if isinstance(error, DBAPIError):
        return ErrorCode.CATALOG_UNAVAILABLE, "the catalog went away during the work"
    return ErrorCode.SERVER_INTERNAL, f"an internal error ended the work ({type(error).__name__}); see the workers' log"
