"""Splits in the catalog."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import and_, func, or_, select

from penstock_server.db import UnitOfWork
from penstock_server.domain.pages import Cursor
from penstock_server.models import Split


class SplitRepository:
    def __init__(self, unit: UnitOfWork) -> None:
        self._session = unit.session

    def add(self, split: Split) -> None:
        self._session.add(split)
        self._session.flush()

    def by_id(self, split_id: UUID) -> Split | None:
        return self._session.get(Split, split_id)

    def named(self, dataset_id: UUID, name: str, number: int | None) -> Split | None:
        """A split of this name: that number, or the highest."""
        statement = select(Split).where(Split.dataset_id == dataset_id, Split.name == name)
        if number is not None:
            statement = statement.where(Split.number == number)
        return self._session.scalar(statement.order_by(Split.number.desc()).limit(1))

    def next_number(self, dataset_id: UUID, name: str) -> int:
        highest = select(func.max(Split.number)).where(Split.dataset_id == dataset_id, Split.name == name)
        return (self._session.scalar(highest) or 0) + 1

    def atoms_of(self, dataset_id: UUID) -> list[list[Any]]:
        """The atoms of every split of a dataset, newest first."""
        statement = select(Split.atoms).where(Split.dataset_id == dataset_id)
        return list(self._session.scalars(statement.order_by(Split.created_at.desc())))

    def page(self, dataset_id: UUID, *, limit: int, cursor: Cursor | None) -> list[Split]:
        """By name, newest number first."""
        statement = select(Split).where(Split.dataset_id == dataset_id)
        is_backward = cursor is not None and cursor.is_backward
        if cursor is not None:
            name, number = str(cursor.key[0]), int(cursor.key[1] or 0)
            after = or_(Split.name > name, and_(Split.name == name, Split.number < number))
            before = or_(Split.name < name, and_(Split.name == name, Split.number > number))
            statement = statement.where(before if is_backward else after)
        order = (Split.name.desc(), Split.number.asc()) if is_backward else (Split.name.asc(), Split.number.desc())
        return list(self._session.scalars(statement.order_by(*order).limit(limit)))
