"""Datasets in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Select, and_, or_, select

from penstock_server.db import UnitOfWork
from penstock_server.domain.pages import Cursor
from penstock_server.models import Dataset, Project, Split, Version


class DatasetRepository:
    def __init__(self, unit: UnitOfWork) -> None:
        self._session = unit.session

    def add(self, dataset: Dataset) -> None:
        self._session.add(dataset)
        self._session.flush()

    def by_id(self, dataset_id: UUID) -> Dataset | None:
        return self._session.scalar(_alive().where(Dataset.id == dataset_id))

    def by_slug(self, slug: str) -> list[Dataset]:
        """Every dataset of this name, at most one a project."""
        return list(self._session.scalars(_alive().where(Dataset.slug == slug).limit(100)))

    def in_project(self, project_id: UUID, slug: str) -> Dataset | None:
        # Deleted ones too: their name stays taken as long as the row does.
        return self._session.scalar(select(Dataset).where(Dataset.project_id == project_id, Dataset.slug == slug))

    def locked(self, dataset_id: UUID) -> Dataset | None:
        """The row as it is now, locked until the end of this unit."""
        statement = _alive().where(Dataset.id == dataset_id).with_for_update()
        return self._session.scalar(statement.execution_options(populate_existing=True))

    def page(self, *, query: str | None, limit: int, cursor: Cursor | None) -> list[Dataset]:
        """By name; up to `limit` rows in the direction of the cursor."""
        statement = _alive()
        if query:
            escaped = query.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            pattern = f"%{escaped}%"
            statement = statement.where(
                or_(Dataset.slug.like(pattern, escape="\\"), Dataset.description.ilike(pattern, escape="\\"))
            )
        is_backward = cursor is not None and cursor.is_backward
        if cursor is not None:
            slug, dataset_id = str(cursor.key[0]), UUID(str(cursor.key[1]))
            after = or_(Dataset.slug > slug, and_(Dataset.slug == slug, Dataset.id > dataset_id))
            before = or_(Dataset.slug < slug, and_(Dataset.slug == slug, Dataset.id < dataset_id))
            statement = statement.where(before if is_backward else after)
        order = (Dataset.slug.desc(), Dataset.id.desc()) if is_backward else (Dataset.slug, Dataset.id)
        return list(self._session.scalars(statement.order_by(*order).limit(limit)))

    def projects(self, project_ids: Sequence[UUID]) -> dict[UUID, Project]:
        rows = self._session.scalars(select(Project).where(Project.id.in_(project_ids)))
        return {project.id: project for project in rows}

    def project_by_slug(self, slug: str) -> Project | None:
        return self._session.scalar(select(Project).where(Project.slug == slug))

    def latest_versions(self, datasets: Sequence[Dataset]) -> dict[UUID, Version]:
        """The latest published version of each, in one query."""
        wanted = [
            and_(Version.dataset_id == dataset.id, Version.number == dataset.latest_version_number)
            for dataset in datasets
            if dataset.latest_version_number is not None
        ]
        if not wanted:
            return {}
        return {version.dataset_id: version for version in self._session.scalars(select(Version).where(or_(*wanted)))}

    def split_names(self, split_ids: Sequence[UUID]) -> dict[UUID, str]:
        if not split_ids:
            return {}
        rows = self._session.execute(select(Split.id, Split.name).where(Split.id.in_(split_ids)))
        return {split_id: name for split_id, name in rows}

    def versions_of(self, dataset_id: UUID) -> list[Version]:
        statement = select(Version).where(Version.dataset_id == dataset_id, Version.state == "published")
        return list(self._session.scalars(statement.order_by(Version.number)))

    def splits_of(self, dataset_id: UUID) -> list[Split]:
        statement = select(Split).where(Split.dataset_id == dataset_id)
        return list(self._session.scalars(statement.order_by(Split.name, Split.number)))

    def flush(self) -> None:
        self._session.flush()


def _alive() -> Select[Dataset]:
    return select(Dataset).where(Dataset.deleted_at.is_(None))
