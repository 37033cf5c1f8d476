"""Rows of projects."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from penstock_server.domain.pages import Cursor
from penstock_server.models import Project


class ProjectRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, project: Project) -> None:
        self._session.add(project)
        self._session.flush()

    def by_slug(self, slug: str) -> Project | None:
        return self._session.scalar(select(Project).where(Project.slug == slug))

    def page(self, cursor: Cursor | None, limit: int) -> list[Project]:
        query = select(Project)
        if cursor is None:
            query = query.order_by(Project.slug)
        elif cursor.is_backward:
            query = query.where(Project.slug < str(cursor.key[0])).order_by(Project.slug.desc())
        else:
            query = query.where(Project.slug > str(cursor.key[0])).order_by(Project.slug)
        return list(self._session.scalars(query.limit(limit)))
