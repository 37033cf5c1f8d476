"""Rows of jobs, as lists and details need them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from penstock_server.domain.pages import Cursor, id_of
from penstock_server.models import Dataset, Job, Project, Quarantined, User


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with the names that belong to it."""

    job: Job
    dataset_slug: str | None
    project_id: UUID | None
    user_name: str | None


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job) -> None:
        self._session.add(job)
        self._session.flush()

    def find(self, job_id: UUID, *, is_locked: bool = False) -> JobRow | None:
        query = _rows().where(Job.id == job_id)
        if is_locked:
            query = query.with_for_update(of=Job)
        row = self._session.execute(query).one_or_none()
        return None if row is None else _row(row)

    def page(
        self, cursor: Cursor | None, limit: int, *, state: str | None, kind: str | None, dataset: str | None
    ) -> list[JobRow]:
        """Newest first (ids grow with time), up to `limit` rows on the cursor's side."""
        query = _rows()
        if state is not None:
            query = query.where(Job.state == state)
        if kind is not None:
            query = query.where(Job.kind == kind)
        if dataset is not None:
            query = query.where(Dataset.slug == dataset)
        if cursor is not None:
            edge = id_of(cursor)
            query = query.where(Job.id > edge if cursor.is_backward else Job.id < edge)
        is_forward = cursor is None or not cursor.is_backward
        query = query.order_by(Job.id.desc() if is_forward else Job.id).limit(limit)
        return [_row(row) for row in self._session.execute(query)]

    def quarantined(self, job_ids: Sequence[UUID], limit: int) -> dict[UUID, list[Quarantined]]:
        """The first `limit` entries of each job."""
        rank = func.row_number().over(partition_by=Quarantined.job_id, order_by=Quarantined.id).label("rank")
        ranked = select(Quarantined.id, rank).where(Quarantined.job_id.in_(job_ids)).subquery()
        query = (
            select(Quarantined)
            .join(ranked, ranked.c.id == Quarantined.id)
            .where(ranked.c.rank <= limit)
            .order_by(Quarantined.id)
        )
        found: dict[UUID, list[Quarantined]] = {}
        for row in self._session.scalars(query):
            found.setdefault(row.job_id, []).append(row)
        return found

    def quarantined_count(self, job_id: UUID) -> int:
        query = select(func.count()).select_from(Quarantined).where(Quarantined.job_id == job_id)
        return self._session.scalar(query) or 0


def _rows() -> Select[Job, str, UUID, str]:
    return (
        select(Job, Dataset.slug, Project.id, User.name)
        .outerjoin(Dataset, Dataset.id == Job.dataset_id)
        .outerjoin(Project, Project.id == Dataset.project_id)
        .outerjoin(User, User.id == Job.created_by)
    )


def _row(row: Row[Job, str, UUID, str]) -> JobRow:
    return JobRow(row[0], row[1], row[2], row[3])
