"""Is it alive, is it ready, and how is it doing."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from penstock_server.api.deps import ServicesDep, action, authorize
from penstock_server.composition import Services
from penstock_server.policy import Action, Actor

CHECK_SECONDS = 5.0

router = APIRouter(tags=["health"])
_log = structlog.get_logger(__name__)


class Liveness(BaseModel):
    status: Literal["ok"] = "ok"


class Check(BaseModel):
    ok: bool
    detail: str | None = None


class Readiness(BaseModel):
    status: Literal["ready", "not_ready"]
    checks: dict[str, Check]


@router.get("/healthz", openapi_extra=action(Action.HEALTH_READ))
async def read_health() -> Liveness:
    """The process answers."""
    return Liveness()


@router.get("/readyz", openapi_extra=action(Action.HEALTH_READ), responses={503: {"model": Readiness}})
async def read_readiness(response: Response, services: ServicesDep) -> Readiness:
    """Catalog, store, queue and events answer; 503 when one does not."""
    probes: dict[str, Callable[[], str | None]] = {
        "catalog": lambda: _catalog_health(services),
        "store": services.store.health,
        "queue": services.queue.health,
        "events": services.bus.health,
    }
    found = await asyncio.gather(*(_check(name, probe) for name, probe in probes.items()))
    is_ready = all(check.ok for check in found)
    if not is_ready:
        response.status_code = 503
    return Readiness(status="ready" if is_ready else "not_ready", checks=dict(zip(probes, found, strict=True)))


@router.get("/metrics", openapi_extra=action(Action.METRICS_READ), response_class=Response)
def read_metrics(request: Request, _: Annotated[Actor, Depends(authorize(Action.METRICS_READ))]) -> Response:
    """Figures for Prometheus."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _catalog_health(services: Services) -> str | None:
    try:
        services.catalog.ping()
    except SQLAlchemyError as error:
        return f"the catalog's database does not answer ({type(error).__name__})"
    return None


async def _check(name: str, probe: Callable[[], str | None]) -> Check:
    try:
        detail = await asyncio.wait_for(run_in_threadpool(probe), CHECK_SECONDS)
    except TimeoutError:
        detail = f"no answer within {CHECK_SECONDS:g} s"
    except Exception:
        # A probe that breaks is a part that does not work; anybody may ask, so the reason stays in the log.
        _log.exception("probe.failed", part=name)
        detail = "the check itself failed; see the server's log"
    return Check(ok=detail is None, detail=detail)
