"""Versions in the catalog."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select

from penstock_server.db import UnitOfWork
from penstock_server.domain.pages import Cursor
from penstock_server.models import Version


class VersionRepository:
    def __init__(self, unit: UnitOfWork) -> None:
        self._session = unit.session

    def add(self, version: Version) -> None:
        self._session.add(version)
        self._session.flush()

    def by_id(self, version_id: UUID) -> Version | None:
        return self._session.get(Version, version_id)

    def published(self, dataset_id: UUID, number: int) -> Version | None:
        return self._session.scalar(
            select(Version).where(
                Version.dataset_id == dataset_id, Version.number == number, Version.state == "published"
            )
        )

    def next_number(self, dataset_id: UUID) -> int:
        """Numbers of reserved versions count too: a number is never given twice."""
        highest = self._session.scalar(select(func.max(Version.number)).where(Version.dataset_id == dataset_id))
        return (highest or 0) + 1

    def page(self, dataset_id: UUID, *, limit: int, cursor: Cursor | None) -> list[Version]:
        """Newest first."""
        statement = select(Version).where(Version.dataset_id == dataset_id, Version.state == "published")
        is_backward = cursor is not None and cursor.is_backward
        if cursor is not None:
            number = int(cursor.key[0] or 0)
            statement = statement.where(Version.number > number if is_backward else Version.number < number)
        order = Version.number.asc() if is_backward else Version.number.desc()
        return list(self._session.scalars(statement.order_by(order).limit(limit)))
