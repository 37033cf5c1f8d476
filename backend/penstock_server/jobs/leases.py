"""Leases on jobs and shards. Every decision is one transaction on the catalog, by the catalog's clock.

A lease carries a fencing number. It grows with every claim and is checked in the transaction that records a result,
so a worker that was frozen, lost its lease and wakes up again changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, text
from sqlalchemy.orm import Session

from penstock.contract.codes import ErrorCode
from penstock_server.db import Catalog, UnitOfWork
from penstock_server.models import Job, JobShard, Quarantined

LEASE_SECONDS = 20.0
MAX_ATTEMPTS = 3
_IDLE_LIMIT_MS = 10_000
OPEN_SHARD_STATES = ("pending", "leased")

Phase = Literal["plan", "write", "publish"]


class LeaseLost(Exception):
    """Somebody else has taken over, or the job has ended: what was done under this lease does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a job (to plan or publish it) or, with `shard_id`, on one of its shards."""

    job_id: UUID
    phase: Phase
    fence: int
    owner: str
    seconds: float
    attempt: int
    shard_id: UUID | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to be: its payload and how many samples it holds."""

    payload: dict[str, Any]
    sample_count: int


@dataclass(frozen=True, slots=True)
class Aside:
    """A file that was put aside, and why."""

    key: str
    reason: str


class LeaseTable:
    """Claims, heartbeats and results of jobs and shards."""

    def __init__(self, catalog: Catalog, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._catalog = catalog
        self._seconds = lease_seconds

    def claim(self, owner: str, job_id: UUID | None = None) -> Lease | None:
        """The next piece of work (of one job, or of any): a shard before a job, older jobs first."""
        return self.claim_shard(owner, job_id) or self.claim_job(owner, job_id)

    def claim_shard(self, owner: str, job_id: UUID | None = None) -> Lease | None:
        with self._catalog.unit() as unit:
            _limit_freezing(unit)
            now = unit.now()
            shard = unit.session.scalars(_claimable_shards(now, job_id).limit(1)).first()
            if shard is None:
                return None
            if shard.state == "leased" and shard.attempts >= MAX_ATTEMPTS:
                _park_shard(unit, shard)
                return None
            is_crashed, shard.state = shard.state == "leased", "leased"
            # What the last owner reported of its progress was never recorded as a result.
            shard.result = None
            _renew(shard, owner, now, self._seconds, is_crashed=is_crashed)
            return Lease(
                job_id=shard.job_id,
                phase="write",
                fence=shard.fence,
                owner=owner,
                seconds=self._seconds,
                attempt=shard.attempts,
                shard_id=shard.id,
                ordinal=shard.ordinal,
            )

    def claim_job(self, owner: str, job_id: UUID | None = None) -> Lease | None:
        with self._catalog.unit() as unit:
            _limit_freezing(unit)
            now = unit.now()
            job = unit.session.scalars(_claimable_jobs(now, job_id).limit(1)).first()
            if job is None:
                return None
            # Asked again under the row's lock: the planner may have committed since the snapshot above.
            shard_count, open_count = _shard_counts(unit.session, job.id)
            if open_count:
                return None
            is_crashed = job.lease_owner is not None
            if is_crashed and job.attempts >= MAX_ATTEMPTS:
                phase = "publishing" if shard_count else "planning"
                _fail(job, now, ErrorCode.SERVER_INTERNAL, f"{phase} ended its worker {job.attempts} times")
                return None
            job.state, job.started_at = "running", job.started_at or now
            _renew(job, owner, now, self._seconds, is_crashed=is_crashed)
            return Lease(
                job_id=job.id,
                phase="publish" if shard_count else "plan",
                fence=job.fence,
                owner=owner,
                seconds=self._seconds,
                attempt=job.attempts,
            )

    def heartbeat(self, lease: Lease) -> bool:
        """Extends the lease; True when the user asked for the job to be cancelled. Raises LeaseLost."""
        with self._catalog.unit() as unit:
            row = _held(unit, lease)
            row.lease_until = unit.now() + timedelta(seconds=lease.seconds)
            job = unit.session.get_one(Job, lease.job_id)
            return job.cancel_requested

    def report(self, lease: Lease, done: int) -> bool:
        """Notes how many samples of the shard are done so far; True when the job is to be cancelled."""
        with self._catalog.unit() as unit:
            job = _locked_job(unit, lease.job_id)
            shard = _held(unit, lease)
            shard.result = {"done": done}
            unit.session.flush()
            job.progress = {**job.progress, "done": _samples_done(unit.session, job.id)}
            return job.cancel_requested

    def complete_shard(self, lease: Lease, result: dict[str, Any], *, aside: Sequence[Aside] = ()) -> None:
        """Records a shard's result, and what was put aside in it, under the lease's fencing number."""
        with self._catalog.unit() as unit:
            job = _locked_job(unit, lease.job_id)
            shard = _held(unit, lease)
            shard.state, shard.result = "done", result
            shard.lease_owner = shard.lease_until = None
            put_aside(unit, job.id, aside)
            unit.session.flush()
            done = _samples_done(unit.session, job.id)
            is_last = _shard_counts(unit.session, job.id)[1] == 0
            phase = "publish" if is_last else "write"
            job.progress = {**job.progress, "phase": phase, "done": done}

    def complete_plan(self, lease: Lease, shards: Sequence[ShardPlan], *, aside: Sequence[Aside] = ()) -> None:
        """Stores the shards and gives the job's lease back, all or nothing."""
        with self._catalog.unit() as unit:
            job = self.check_job(unit, lease)
            unit.session.add_all(
                JobShard(job_id=job.id, ordinal=ordinal, payload=shard.payload) for ordinal, shard in enumerate(shards)
            )
            put_aside(unit, job.id, aside)
            total = sum(shard.sample_count for shard in shards)
            listed = total + len(aside)
            job.progress = {"done": 0, "total": total, "phase": "write", "unit": "samples", "listed": listed}
            job.attempts = 0
            job.lease_owner = job.lease_until = None

    def check_job(self, unit: UnitOfWork, lease: Lease) -> Job:
        """The job, locked, inside the caller's transaction; raises LeaseLost when the lease is not ours any more."""
        job = _locked_job(unit, lease.job_id)
        if job.state != "running" or job.fence != lease.fence or job.lease_owner != lease.owner:
            raise LeaseLost
        return job

    def release(self, lease: Lease, *, wait_seconds: float = 0.0, is_failed_attempt: bool = False) -> bool:
        """Gives the work back, to be claimed after `wait_seconds`; False when it has no attempt left."""
        with self._catalog.unit() as unit:
            row = _held(unit, lease)
            if is_failed_attempt and row.attempts >= MAX_ATTEMPTS:
                return False
            row.attempts += is_failed_attempt
            row.lease_owner = None
            row.lease_until = unit.now() + timedelta(seconds=wait_seconds) if wait_seconds else None
            if isinstance(row, JobShard):
                row.state, row.result = "pending", None
            return True

    def fail(self, lease: Lease, code: ErrorCode, detail: str, *, aside: Sequence[Aside] = ()) -> None:
        """Ends the whole job with an error; shards that others hold end at their next heartbeat."""
        with self._catalog.unit() as unit:
            job = _locked_job(unit, lease.job_id)
            row = _held(unit, lease)
            if isinstance(row, JobShard):
                row.state, row.lease_owner, row.lease_until = "failed", None, None
            put_aside(unit, job.id, aside)
            _fail(job, unit.now(), code, detail)

    def sweep(self) -> list[UUID]:
        """Ends cancelled jobs that nobody works on; returns jobs that have work nobody holds."""
        with self._catalog.unit(is_read_only=True) as unit:
            now = unit.now()
            cancelled = unit.session.scalars(_idle_cancelled(now)).all()
            jobs = _claimable_jobs(now, None, is_locking=False).with_only_columns(Job.id)
            shards = _claimable_shards(now, None, is_locking=False).with_only_columns(JobShard.job_id)
            waiting = {*unit.session.scalars(jobs), *unit.session.scalars(shards.order_by(None).distinct())}
        for job_id in cancelled:
            self.settle_cancelled(job_id)
        return sorted(waiting)

    def settle_cancelled(self, job_id: UUID) -> bool:
        """Marks the job cancelled when that was asked for and nobody holds a live lease on it."""
        with self._catalog.unit() as unit:
            return settle_cancelled(unit, job_id)


def settle_cancelled(unit: UnitOfWork, job_id: UUID) -> bool:
    """As the method, inside the caller's transaction."""
    job, now = _locked_job(unit, job_id), unit.now()
    if job.state not in ("queued", "running") or not job.cancel_requested:
        return False
    if unit.session.scalar(select(Job.id).where(Job.id == job_id, _is_idle(now))) is None:
        return False
    job.state, job.ended_at, job.lease_owner, job.lease_until = "cancelled", now, None, None
    return True


def put_aside(unit: UnitOfWork, job_id: UUID, aside: Sequence[Aside]) -> None:
    unit.session.add_all(Quarantined(job_id=job_id, key=item.key, reason=item.reason) for item in aside)


def _renew(row: Job | JobShard, owner: str, now: datetime, seconds: float, *, is_crashed: bool) -> None:
    row.fence += 1
    row.attempts = max(1, row.attempts + is_crashed)
    row.lease_owner, row.lease_until = owner, now + timedelta(seconds=seconds)


def _held(unit: UnitOfWork, lease: Lease) -> Job | JobShard:
    """The leased row, locked. An overdue lease that nobody has taken over still counts as held."""
    _limit_freezing(unit)
    if lease.shard_id is None:
        row: Job | JobShard | None = unit.session.get(Job, lease.job_id, with_for_update=True)
        is_live = isinstance(row, Job) and row.state == "running"
    else:
        row = unit.session.get(JobShard, lease.shard_id, with_for_update=True)
        is_live = isinstance(row, JobShard) and row.state == "leased"
        is_live = is_live and unit.session.get_one(Job, lease.job_id).state == "running"
    if row is None or not is_live or row.fence != lease.fence or row.lease_owner != lease.owner:
        raise LeaseLost
    return row


def _locked_job(unit: UnitOfWork, job_id: UUID) -> Job:
    _limit_freezing(unit)
    return unit.session.get_one(Job, job_id, with_for_update=True, populate_existing=True)


def _limit_freezing(unit: UnitOfWork) -> None:
    """A worker that freezes inside a transaction must not keep its rows locked, and its work from the others."""
    if unit.session.get_bind().dialect.name == "postgresql":
        unit.session.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_LIMIT_MS}"))


def _fail(job: Job, now: datetime, code: ErrorCode, detail: str) -> None:
    job.state, job.ended_at = "failed", now
    job.error = {"code": code.value, "detail": detail}
    job.lease_owner = job.lease_until = None


def _park_shard(unit: UnitOfWork, shard: JobShard) -> None:
    shard.state, shard.lease_owner, shard.lease_until = "failed", None, None
    detail = f"part {shard.ordinal + 1} ended its worker {shard.attempts} times; see the workers' log"
    job = _locked_job(unit, shard.job_id)
    if job.state == "running":
        _fail(job, unit.now(), ErrorCode.SERVER_INTERNAL, detail)


def _is_free(table: type[Job] | type[JobShard], now: datetime) -> ColumnElement[bool]:
    return or_(table.lease_until.is_(None), table.lease_until < now)


def _claimable_shards(now: datetime, job_id: UUID | None, *, is_locking: bool = True) -> Any:
    query = (
        select(JobShard)
        .join(Job, Job.id == JobShard.job_id)
        .where(
            JobShard.state.in_(OPEN_SHARD_STATES),
            _is_free(JobShard, now),
            Job.state == "running",
            Job.cancel_requested.is_(False),
        )
        .order_by(Job.created_at, JobShard.ordinal)
    )
    if job_id is not None:
        query = query.where(JobShard.job_id == job_id)
    return query.with_for_update(of=JobShard, skip_locked=True) if is_locking else query


def _claimable_jobs(now: datetime, job_id: UUID | None, *, is_locking: bool = True) -> Any:
    query = (
        select(Job)
        .where(
            Job.state.in_(("queued", "running")),
            Job.cancel_requested.is_(False),
            _is_free(Job, now),
            ~_has_shard(JobShard.state.in_(OPEN_SHARD_STATES)),
        )
        .order_by(Job.created_at)
    )
    if job_id is not None:
        query = query.where(Job.id == job_id)
    return query.with_for_update(skip_locked=True) if is_locking else query


def _idle_cancelled(now: datetime) -> Any:
    return select(Job.id).where(Job.state.in_(("queued", "running")), Job.cancel_requested.is_(True), _is_idle(now))


def _is_idle(now: datetime) -> ColumnElement[bool]:
    return and_(_is_free(Job, now), ~_has_shard(and_(JobShard.state == "leased", JobShard.lease_until >= now)))


def _has_shard(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists(select(JobShard.id).where(JobShard.job_id == Job.id, condition).correlate(Job))


def _shard_counts(session: Session, job_id: UUID) -> tuple[int, int]:
    """(all, open) shards of a job."""
    is_open = JobShard.state.in_(OPEN_SHARD_STATES)
    row = session.execute(
        select(func.count(), func.count().filter(is_open)).select_from(JobShard).where(JobShard.job_id == job_id)
    ).one()
    return int(row[0]), int(row[1])


def _samples_done(session: Session, job_id: UUID) -> int:
    done = func.sum(JobShard.result["done"].as_integer())
    return int(session.scalar(select(done).where(JobShard.job_id == job_id)) or 0)
