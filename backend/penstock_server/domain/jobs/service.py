"""Jobs: ask for one, look at it, cancel it."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.db import UnitOfWork
from penstock_server.domain.jobs.repository import JobRepository, JobRow
from penstock_server.domain.jobs.schemas import (
    QUARANTINE_SHOWN,
    IngestCreate,
    JobError,
    JobProgress,
    JobRead,
    JobResult,
    QuarantinedRead,
)
from penstock_server.domain.jobs.sources import check_roles, checked_folder
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.errors import Conflict, NotFound
from penstock_server.events import EventBus
from penstock_server.jobs.leases import settle_cancelled
from penstock_server.jobs.names import INGEST
from penstock_server.jobs.queue import JobQueue
from penstock_server.models import Job, Quarantined
from penstock_server.policy import Action, Actor, is_allowed, require

_ENDED = ("succeeded", "failed", "cancelled")


class JobService:
    """Jobs of one catalog; changes are announced on the bus after the commit."""

    def __init__(self, unit: UnitOfWork, queue: JobQueue, bus: EventBus) -> None:
        self._unit = unit
        self._queue = queue
        self._bus = bus
        self._rows = JobRepository(unit.session)

    def create_ingest(
        self,
        actor: Actor,
        payload: IngestCreate,
        *,
        dataset_id: UUID,
        project_id: UUID,
        allowed_roots: Sequence[Path],
    ) -> JobRead:
        """Checks the folder and queues an ingest of it."""
        require(actor, Action.INGEST_CREATE, project_id=project_id)
        folder = checked_folder(payload.source.path, allowed_roots)
        check_roles(folder, sidecar=payload.sidecar, label=payload.label, group=payload.group)
        job = Job(
            kind=INGEST,
            dataset_id=dataset_id,
            state="queued",
            payload=payload.model_dump(mode="json"),
            progress=JobProgress().model_dump(),
            created_by=actor.user_id,
            created_at=self._unit.now(),
        )
        self._rows.add(job)
        self._unit.after_commit(lambda: self._queue.wake(job.id))
        return self.announce(job.id)

    def list(
        self,
        actor: Actor,
        request: PageRequest,
        *,
        state: str | None = None,
        kind: str | None = None,
        dataset: str | None = None,
    ) -> Page[JobRead]:
        """Jobs that the actor may see, newest first."""
        scope = f"jobs:{actor.user_id}:{state}:{kind}:{dataset}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        rows = self._rows.page(cursor, request.limit + 1, state=state, kind=kind, dataset=dataset)
        page = page_of(rows, [(str(row.job.id),) for row in rows], request, scope=scope)
        visible = [row for row in page.items if _is_visible(actor, row)]
        quarantined = self._rows.quarantined([row.job.id for row in visible], QUARANTINE_SHOWN)
        items = [_read(row, quarantined.get(row.job.id, [])) for row in visible]
        return Page[JobRead](items=items, next_cursor=page.next_cursor, prev_cursor=page.prev_cursor)

    def get(self, actor: Actor, job_id: UUID) -> JobRead:
        """One job."""
        return self._shown(self._visible(actor, job_id))

    def cancel(self, actor: Actor, job_id: UUID) -> JobRead:
        """Asks for the job to stop; what it has not published never appears."""
        row = self._visible(actor, job_id, is_locked=True)
        require(actor, Action.JOB_CANCEL, project_id=row.project_id)
        if row.job.state in _ENDED:
            raise Conflict(
                ErrorCode.JOB_NOT_CANCELLABLE,
                f"the job has {row.job.state} already, there is nothing left to cancel",
                context={"state": row.job.state},
            )
        row.job.cancel_requested = True
        self._unit.session.flush()
        settle_cancelled(self._unit, job_id)
        self._unit.after_commit(lambda: self._queue.wake(job_id))
        return self.announce(job_id)

    def announce(self, job_id: UUID) -> JobRead:
        """Publishes the job's state when this unit commits, and returns it."""
        row = self._rows.find(job_id)
        if row is None:
            raise _not_found(job_id)
        job = self._shown(row)
        project_id = row.project_id
        if project_id is not None:
            self._unit.after_commit(lambda: self._bus.publish("jobs", "job", project_id, job.model_dump(mode="json")))
        return job

    def _visible(self, actor: Actor, job_id: UUID, *, is_locked: bool = False) -> JobRow:
        row = self._rows.find(job_id, is_locked=is_locked)
        if row is None or not _is_visible(actor, row):
            raise _not_found(job_id)
        return row

    def _shown(self, row: JobRow) -> JobRead:
        return _read(row, self._rows.quarantined([row.job.id], QUARANTINE_SHOWN).get(row.job.id, []))


def _is_visible(actor: Actor, row: JobRow) -> bool:
    return is_allowed(actor, Action.JOB_READ, project_id=row.project_id)


def _not_found(job_id: UUID) -> NotFound:
    return NotFound(ErrorCode.JOB_NOT_FOUND, f"there is no job {job_id}", context={"job_id": str(job_id)})


def _read(row: JobRow, quarantined: Sequence[Quarantined]) -> JobRead:
    job = row.job
    return JobRead(
        id=job.id,
        kind=INGEST,
        dataset=row.dataset_slug,
        state=job.state,
        progress=JobProgress.model_validate(job.progress),
        result=None if job.result is None else JobResult.model_validate(job.result),
        error=None if job.error is None else JobError.model_validate(job.error),
        quarantined=[QuarantinedRead(key=each.key, reason=each.reason) for each in quarantined],
        # Planning, writing and publishing count their attempts anew; a started job has at least one.
        attempts=max(job.attempts, int(job.started_at is not None)),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        created_by=row.user_name,
    )
