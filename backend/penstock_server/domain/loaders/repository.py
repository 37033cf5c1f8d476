"""Rows of runs, loaders and points."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from penstock_server.domain.pages import Cursor, id_of
from penstock_server.models import Dataset, LoaderPointRow, LoaderRow, Run, User


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with the names that belong to it."""

    run: Run
    dataset_slug: str
    user_name: str


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a list of runs is narrowed to; `silent_before` parts running from silent ones."""

    state: str | None
    seen_after: datetime | None
    silent_before: datetime


class RunRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def find_or_add(self, run: Run) -> Run:
        """The run with this name, user and subset; two ranks that start at once get the same one."""
        found = self._named(run)
        if found is not None:
            return found
        try:
            with self._session.begin_nested():
                self._session.add(run)
        except IntegrityError:
            found = self._named(run)
            if found is None:
                raise
            return found
        return run

    def find(self, run_id: UUID) -> RunRow | None:
        row = self._session.execute(_rows().where(Run.id == run_id)).one_or_none()
        return None if row is None else _row(row)

    def page(self, cursor: Cursor | None, limit: int, wanted: RunFilter) -> list[RunRow]:
        """Newest first (ids grow with time), up to `limit` rows on the cursor's side."""
        query = _rows()
        if wanted.state in ("ended", "failed"):
            query = query.where(Run.state == wanted.state)
        elif wanted.state is not None:
            is_fresh = Run.last_seen_at >= wanted.silent_before
            query = query.where(Run.state == "running", is_fresh if wanted.state == "running" else ~is_fresh)
        if wanted.seen_after is not None:
            query = query.where(Run.last_seen_at >= wanted.seen_after)
        is_forward = cursor is None or not cursor.is_backward
        if cursor is not None:
            edge = id_of(cursor)
            query = query.where(Run.id < edge if is_forward else Run.id > edge)
        query = query.order_by(Run.id.desc() if is_forward else Run.id).limit(limit)
        return [_row(row) for row in self._session.execute(query)]

    def loader(self, loader_id: UUID) -> LoaderRow | None:
        return self._session.get(LoaderRow, loader_id, with_for_update=True)

    def loaders(self, run_ids: Sequence[UUID]) -> dict[UUID, list[LoaderRow]]:
        query = select(LoaderRow).where(LoaderRow.run_id.in_(run_ids)).order_by(LoaderRow.rank, LoaderRow.id)
        found: dict[UUID, list[LoaderRow]] = {run_id: [] for run_id in run_ids}
        for row in self._session.scalars(query):
            found[row.run_id].append(row)
        return found

    def add_loader(self, loader: LoaderRow) -> None:
        self._session.add(loader)
        self._session.flush()

    def add_points(self, loader_id: UUID, points: Sequence[tuple[datetime, dict[str, Any]]]) -> None:
        taken = select(LoaderPointRow.at).where(
            LoaderPointRow.loader_id == loader_id, LoaderPointRow.at.in_([at for at, _ in points])
        )
        known = set(self._session.scalars(taken))
        self._session.add_all(
            LoaderPointRow(loader_id=loader_id, at=at, point=point) for at, point in points if at not in known
        )

    def points(self, run_id: UUID, after: datetime) -> list[LoaderPointRow]:
        query = (
            select(LoaderPointRow)
            .join(LoaderRow, LoaderRow.id == LoaderPointRow.loader_id)
            .where(LoaderRow.run_id == run_id, LoaderPointRow.at >= after)
            .order_by(LoaderPointRow.at)
        )
        return list(self._session.scalars(query))

    def forget_points(self, before: datetime) -> None:
        self._session.execute(delete(LoaderPointRow).where(LoaderPointRow.at < before))

    def _named(self, run: Run) -> Run | None:
        query = select(Run).where(
            Run.name == run.name,
            Run.user_id == run.user_id,
            Run.dataset_id == run.dataset_id,
            Run.version_number == run.version_number,
            Run.split == run.split,
            Run.subset == run.subset,
        )
        return self._session.scalar(query.with_for_update())


def _rows() -> Select[Run, str, str]:
    return (
        select(Run, Dataset.slug, User.name)
        .join(Dataset, Dataset.id == Run.dataset_id)
        .join(User, User.id == Run.user_id)
    )


def _row(row: Row[Run, str, str]) -> RunRow:
    return RunRow(row[0], row[1], row[2])
