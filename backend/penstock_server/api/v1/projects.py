"""Projects the caller may see."""

from typing import Annotated

from fastapi import APIRouter, Depends

from penstock_server.api.deps import UnitDep, action, authorize
from penstock_server.api.pagination import Page, PageDep
from penstock_server.domain.projects.schemas import ProjectRead
from penstock_server.domain.projects.service import ProjectService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/projects", tags=["projects"])


@router.get("", openapi_extra=action(Action.PROJECT_READ))
def list_projects(
    unit: UnitDep, page: PageDep, actor: Annotated[Actor, Depends(authorize(Action.PROJECT_READ))]
) -> Page[ProjectRead]:
    """All projects of this server that the caller may see."""
    return ProjectService(unit).list(actor, page)
