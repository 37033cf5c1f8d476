"""Projects: the boundary of trust. There is a `default` one, so small users never see it."""

from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock_server.db import UnitOfWork
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.domain.projects.repository import ProjectRepository
from penstock_server.domain.projects.schemas import ProjectRead
from penstock_server.errors import NotFound
from penstock_server.models import Project
from penstock_server.policy import Action, Actor, is_allowed

DEFAULT_SLUG = "default"


class ProjectService:
    """Projects that exist."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._rows = ProjectRepository(unit.session)

    def ensure_default(self) -> Project:
        """The project that every server has."""
        project = self._rows.by_slug(DEFAULT_SLUG)
        if project is None:
            project_id = uuid7()
            project = Project(
                id=project_id,
                slug=DEFAULT_SLUG,
                name="Default",
                # Our own name, from the id: no text of a user ever reaches an identifier of the store.
                keyspace=f"ps_{project_id.hex}",
                created_at=self._unit.now(),
            )
            self._rows.add(project)
        return project

    def get(self, slug: str) -> Project:
        """The project with this slug."""
        project = self._rows.by_slug(slug)
        if project is None:
            raise NotFound(ErrorCode.PROJECT_NOT_FOUND, f"there is no project '{slug}'", context={"project": slug})
        return project

    def list(self, actor: Actor, request: PageRequest) -> Page[ProjectRead]:
        """The projects this actor may see, by slug."""
        scope = f"projects:{actor.user_id}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        rows = self._rows.page(cursor, request.limit + 1)
        page = page_of(rows, [(row.slug,) for row in rows], request, scope=scope)
        visible = [row for row in page.items if is_allowed(actor, Action.PROJECT_READ, project_id=row.id)]
        return Page[ProjectRead](
            items=[ProjectRead.model_validate(row) for row in visible],
            next_cursor=page.next_cursor,
            prev_cursor=page.prev_cursor,
        )
