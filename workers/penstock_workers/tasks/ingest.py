"""Ingest: plan a source into shards, write each shard into the store, publish one version of all of them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
import structlog
from sqlalchemy import select

from penstock.contract.codes import ErrorCode
from penstock.contract.records import OBJECTS_TABLE, OWN_FIELD, OWN_STAGED, SAMPLES_TABLE
from penstock_server.composition import Services
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.domain.datasets.service import DatasetService, schema_of
from penstock_server.domain.jobs.repository import JobRepository
from penstock_server.domain.jobs.schemas import IngestCreate
from penstock_server.domain.jobs.sources import checked_folder
from penstock_server.domain.versions.publisher import VersionPublisher
from penstock_server.domain.versions.service import StaleParent, VersionService
from penstock_server.errors import Conflict, ServerError
from penstock_server.jobs.leases import Aside, Lease, LeaseTable
from penstock_server.models import Dataset, Job, JobShard, Project, User
from penstock_server.policy import Action, Actor, Role, require
from penstock_server.store.gateway import store_errors
from penstock_workers.outcomes import Cancelled, Permanent, Transient
from penstock_workers.readers import Listing, read_source
from penstock_workers.readers.reader import folder_source
from penstock_workers.runner import Work
from penstock_workers.tasks.planning import Row, cut_batches, cut_shards
from penstock_workers.tasks.samples import ReadySample, SampleReader
from penstock_workers.tasks.staging import StagedRows, read_staged

_log = structlog.get_logger(__name__)

PUBLISH_TRIES = 5
# One message for each shard up to this many: enough to bring in every worker, no flood for a large job.
WAKE_LIMIT = 32
# So many bad files never fail a job: in a small folder a single one is soon more than any share.
FEW_BAD = 8


@dataclass(frozen=True, slots=True)
class IngestJob:
    """A job with everything that its steps need to know; the rows are detached."""

    job: Job
    request: IngestCreate
    dataset: Dataset
    project: Project
    schema: DatasetSchema

    @property
    def declared(self) -> DatasetSchema | None:
        return self.schema if self.schema.fields else None


class IngestTask:
    """The three steps of an ingest; each may run twice or die anywhere."""

    def plan(self, work: Work) -> None:
        """List the source, fix the schema and its categories, then cut shards."""
        ingest = _load(work.services, work.lease)
        folder = checked_folder(ingest.request.source.path, work.services.settings.ingest.allowed_roots)
        listing = read_source(folder, ingest.request, ingest.declared)
        work.heartbeat.check()
        aside = [Aside(problem.key, problem.reason) for problem in listing.problems]
        if not listing.entries and not aside:
            raise Permanent(
                ErrorCode.INGEST_FOLDER_EMPTY,
                f"the folder '{folder}' holds nothing that can be a sample; put pictures there, or name another folder",
            )
        limit = work.services.settings.ingest.max_bad_share
        _require_few_bad(len(aside), listed=len(aside) + len(listing.entries), limit=limit, aside=aside)
        schema = self._settle_schema(work, ingest, listing)
        # Once, before many workers need it at the same time.
        work.services.store.ensure_project(ingest.project)
        shards = list(cut_shards(listing.entries, schema))
        work.patiently(lambda: work.leases.complete_plan(work.lease, shards, aside=aside))
        for _ in shards[:WAKE_LIMIT]:
            work.services.queue.wake(work.lease.job_id)

    def write(self, work: Work) -> None:
        """Read, check and store the samples of one shard; leave its staged table and its result."""
        ingest = _load(work.services, work.lease)
        rows = _shard_rows(work.services, work.lease)
        # Resolved again: what the folder's name points at may have changed since the plan.
        folder = checked_folder(ingest.request.source.path, work.services.settings.ingest.allowed_roots)
        source = folder_source(folder, ingest.request)
        reader = SampleReader(source, ingest.dataset.id, ingest.schema)
        staged, aside, done = StagedRows(ingest.schema), [], 0
        with ThreadPoolExecutor(work.threads, thread_name_prefix="read") as pool:
            for batch in cut_batches(rows, source):
                work.heartbeat.check()
                outcomes = list(pool.map(reader.read, batch))
                ready = [outcome for outcome in outcomes if isinstance(outcome, ReadySample)]
                aside += [outcome for outcome in outcomes if isinstance(outcome, Aside)]
                _store(work.services, ingest, ready)
                staged.extend(ready)
                done += len(batch)
                work.report(done)
        self._require_few_bad_so_far(work, aside)
        work.heartbeat.check()
        # The fencing number is in the name, so a worker that lost its lease cannot overwrite its successor's table.
        name = f"{work.lease.job_id.hex}/{work.lease.ordinal}/{work.lease.fence}"
        table_id = work.services.store.put_own(ingest.project, ingest.dataset.id, OWN_STAGED, name, staged.to_bytes())
        result = {"done": done, "sample_count": len(staged), "staged": str(table_id)}
        work.patiently(lambda: work.leases.complete_shard(work.lease, result, aside=aside))

    def publish(self, work: Work) -> None:
        """One version of all staged tables, published in the transaction that ends the job."""
        ingest = _load(work.services, work.lease)
        table_ids = _staged_ids(work.services, work.lease)
        for _ in range(PUBLISH_TRIES):
            work.heartbeat.check()
            with work.services.catalog.unit(is_read_only=True) as unit:
                dataset = unit.session.get_one(Dataset, ingest.dataset.id)
                quarantined = JobRepository(unit.session).quarantined_count(work.lease.job_id)
            tables = _staged_tables(work, ingest, table_ids)
            prepared = VersionPublisher(work.services).prepare(
                dataset.id, work.lease.job_id, tables, parent=dataset.latest_version_number
            )
            try:
                with work.services.catalog.unit() as unit:
                    services = work.services
                    version = VersionService(unit, services.store, services.bus).publish(
                        prepared, fence_check=_fence_check(work.leases, work.lease), quarantined_count=quarantined
                    )
                    job = unit.session.get_one(Job, work.lease.job_id)
                    job.state, job.ended_at = "succeeded", unit.now()
                    job.lease_owner = job.lease_until = None
                    job.result = {
                        "version": version.number,
                        "sample_count": version.sample_count,
                        "quarantined_count": quarantined,
                    }
            except StaleParent:
                continue
            self._forget_staged(work, ingest, table_ids)
            return
        raise Transient(ErrorCode.SERVER_INTERNAL, "other ingests kept publishing into this dataset; try again")

    def _settle_schema(self, work: Work, ingest: IngestJob, listing: Listing) -> DatasetSchema:
        services = work.services
        try:
            with services.catalog.unit() as unit:
                work.leases.check_job(unit, work.lease)
                datasets = DatasetService(unit, services.store, services.bus)
                if ingest.declared is None:
                    datasets.set_schema(ingest.dataset.id, listing.schema)
                return datasets.append_categories(ingest.dataset.id, listing.categories())
        except Conflict:
            # Another ingest has declared the schema since it was read; the next attempt plans against that one.
            raise Transient(ErrorCode.INGEST_SCHEMA_MISMATCH, "the dataset's schema was declared meanwhile") from None

    def _require_few_bad_so_far(self, work: Work, aside: Sequence[Aside]) -> None:
        with work.services.catalog.unit(is_read_only=True) as unit:
            job = unit.session.get_one(Job, work.lease.job_id)
            bad = JobRepository(unit.session).quarantined_count(job.id) + len(aside)
        limit = work.services.settings.ingest.max_bad_share
        _require_few_bad(bad, listed=job.progress["listed"], limit=limit, aside=aside)

    def _forget_staged(self, work: Work, ingest: IngestJob, table_ids: Sequence[UUID]) -> None:
        try:
            with store_errors():
                native = work.services.store.native(ingest.project)
                native.delete(OBJECTS_TABLE, ingest.dataset.id.bytes, [table_id.bytes for table_id in table_ids])
        except ServerError as error:
            # They cost a little room and nothing else.
            _log.warning("ingest.staged_kept", job_id=str(work.lease.job_id), reason=error.detail)


def _load(services: Services, lease: Lease) -> IngestJob:
    """The job and its places; the owner's right is asked again, it may have been taken away meanwhile."""
    with services.catalog.unit(is_read_only=True) as unit:
        job = unit.session.get_one(Job, lease.job_id)
        dataset = unit.session.get(Dataset, job.dataset_id)
        if dataset is None or dataset.deleted_at is not None:
            raise Permanent(ErrorCode.DATASET_NOT_FOUND, "the dataset was deleted")
        project = unit.session.get_one(Project, dataset.project_id)
        _require_owner(unit, job, project.id)
        request = IngestCreate.model_validate(job.payload)
        return IngestJob(job, request, dataset, project, schema_of(dataset))


def _require_owner(unit: UnitOfWork, job: Job, project_id: UUID) -> None:
    owner = None if job.created_by is None else unit.session.get(User, job.created_by)
    if owner is None:
        raise Permanent(ErrorCode.AUTH_FORBIDDEN, "the user who asked for this job does not exist any more")
    role: Role = "admin" if owner.role == "admin" else "member"
    require(Actor(owner.id, role), Action.INGEST_CREATE, project_id=project_id)


def _fence_check(leases: LeaseTable, lease: Lease) -> Callable[[UnitOfWork], None]:
    def check(unit: UnitOfWork) -> None:
        job = leases.check_job(unit, lease)
        if job.cancel_requested:
            raise Cancelled

    return check


def _shard_rows(services: Services, lease: Lease) -> list[Row]:
    with services.catalog.unit(is_read_only=True) as unit:
        shard = unit.session.get_one(JobShard, lease.shard_id)
        rows: list[Row] = shard.payload["rows"]
        return rows


def _store(services: Services, ingest: IngestJob, ready: Sequence[ReadySample]) -> None:
    """Write at quorum and read back: a sample counts when both have succeeded."""
    if not ready:
        return
    dataset_id = ingest.dataset.id.bytes
    objects = [
        (sample.object_id.bytes, [(name, field.data) for name, field in sample.fields.items()]) for sample in ready
    ]
    thumbnails = [
        (sample.thumbnail_id.bytes, [(OWN_FIELD, sample.thumbnail)])
        for sample in ready
        if sample.thumbnail_id is not None and sample.thumbnail is not None
    ]
    expected = [
        (sample.object_id.bytes, name, len(field.data), field.xxh3)
        for sample in ready
        for name, field in sample.fields.items()
    ]
    with store_errors():
        native = services.store.native(ingest.project)
        native.write(SAMPLES_TABLE, dataset_id, objects)
        native.write(OBJECTS_TABLE, dataset_id, thumbnails)
        wrong = [problem for problem in native.verify(SAMPLES_TABLE, dataset_id, expected) if problem is not None]
    if wrong:
        raise Transient(ErrorCode.STORE_UNAVAILABLE, f"the store did not keep what was written: {wrong[0]}")


def _staged_ids(services: Services, lease: Lease) -> list[UUID]:
    query = select(JobShard.result).where(JobShard.job_id == lease.job_id).order_by(JobShard.ordinal)
    with services.catalog.unit(is_read_only=True) as unit:
        results = unit.session.scalars(query).all()
    return [UUID(result["staged"]) for result in results if result is not None]


def _staged_tables(work: Work, ingest: IngestJob, table_ids: Sequence[UUID]) -> Iterator[pa.Table]:
    for table_id in table_ids:
        work.heartbeat.check()
        yield read_staged(work.services.store.get_own(ingest.project, ingest.dataset.id, table_id))


def _require_few_bad(bad: int, *, listed: int, limit: float, aside: Sequence[Aside]) -> None:
    # A share of 0 is a demand for none at all.
    allowed = max(listed * limit, FEW_BAD) if limit else 0
    if not bad or (bad <= allowed and bad < listed):
        return
    first = f"; the first one: {aside[0].key}: {aside[0].reason}" if aside else ""
    what = f"{bad:,} of {listed:,} files cannot be used, more than the allowed {limit:.0%}"
    remedy = "mend or remove them, or raise PENSTOCK_INGEST__MAX_BAD_SHARE"
    if bad >= listed:
        what, remedy = f"none of the {listed:,} files can be used", "mend them, or choose another folder"
    detail = f"{what}{first}. Nothing was published; {remedy}"
    raise Permanent(ErrorCode.INGEST_TOO_MANY_BAD, detail, aside=aside)
