"""Is it alive, is it ready, and how is it doing."""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from penstock_server.api.deps import ServicesDep, action, authorize
from penstock_server.api.probes import Check, Probes
from penstock_server.composition import Services
from penstock_server.db.migrations import CatalogUnusable, require_current
from penstock_server.domain.projects.service import DEFAULT_SLUG, ProjectService
from penstock_server.errors import NotFound
from penstock_server.models import Project
from penstock_server.policy import Action, Actor

router = APIRouter(tags=["health"])


class Liveness(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ready", "not_ready"]
    checks: dict[str, Check]


@router.get("/healthz", openapi_extra=action(Action.HEALTH_READ))
async def read_health() -> Liveness:
    """The process answers."""
    return Liveness()


@router.get("/readyz", openapi_extra=action(Action.HEALTH_READ), responses={503: {"model": Readiness}})
async def read_readiness(request: Request, response: Response, services: ServicesDep) -> Readiness:
    """Catalog, store, queue and events answer; 503 when one does not."""
    probes: Probes = request.app.state.probes
    parts: dict[str, Callable[[], str | None]] = {
        "catalog": lambda: _catalog_health(services),
        "store": lambda: services.store.health(_default_project(services)),
        "queue": services.queue.health,
        "events": services.bus.health,
    }
    checks = await probes.check_all(parts)
    is_ready = all(check.ok for check in checks.values())
    if not is_ready:
        response.status_code = 503
    return Readiness(status="ready" if is_ready else "not_ready", checks=checks)


@router.get("/metrics", openapi_extra=action(Action.METRICS_READ), response_class=Response)
def read_metrics(request: Request, _: Annotated[Actor, Depends(authorize(Action.METRICS_READ))]) -> Response:
    """Figures for Prometheus."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _catalog_health(services: Services) -> str | None:
    try:
        require_current(services.catalog)
    except CatalogUnusable as error:
        return str(error)
    except SQLAlchemyError as error:
        return f"the catalog's database does not answer ({type(error).__name__})"
    return None


def _default_project(services: Services) -> Project | None:
    try:
        with services.catalog.unit(is_read_only=True) as unit:
            return ProjectService(unit).get(DEFAULT_SLUG)
    except (NotFound, SQLAlchemyError):
        return None
