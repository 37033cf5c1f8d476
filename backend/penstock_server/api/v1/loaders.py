"""Loaders report here; the Live page reads the runs they belong to."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, status

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize
from penstock_server.api.pagination import Page, PageDep
from penstock_server.domain.datasets.service import DatasetService
from penstock_server.domain.loaders.schemas import (
    LoaderCreate,
    LoaderCreated,
    LoaderEnd,
    PointsIn,
    RunDetail,
    RunRead,
    RunState,
)
from penstock_server.domain.loaders.service import LoaderService
from penstock_server.policy import Action, Actor

router = APIRouter(tags=["loaders"])

Reporter = Annotated[Actor, Depends(authorize(Action.LOADER_REPORT))]
Reader = Annotated[Actor, Depends(authorize(Action.RUN_READ))]


@router.post("/loaders", status_code=status.HTTP_201_CREATED, openapi_extra=action(Action.LOADER_REPORT))
def register_loader(payload: LoaderCreate, unit: UnitDep, services: ServicesDep, actor: Reporter) -> LoaderCreated:
    """A loader starts; the answer has the address of its run's Live page."""
    datasets = DatasetService(unit, services.store, services.bus)
    place = datasets.find(payload.dataset, actor=actor, action=Action.LOADER_REPORT)
    return LoaderService(unit, services.bus).register(actor, payload, place, page_url=services.settings.server.url)


@router.post(
    "/loaders/{loader_id}/points", status_code=status.HTTP_204_NO_CONTENT, openapi_extra=action(Action.LOADER_REPORT)
)
def add_points(loader_id: UUID, payload: PointsIn, unit: UnitDep, services: ServicesDep, actor: Reporter) -> None:
    """What the loader has measured since its last report."""
    LoaderService(unit, services.bus).add_points(actor, loader_id, payload)


@router.post(
    "/loaders/{loader_id}/end", status_code=status.HTTP_204_NO_CONTENT, openapi_extra=action(Action.LOADER_REPORT)
)
def end_loader(loader_id: UUID, payload: LoaderEnd, unit: UnitDep, services: ServicesDep, actor: Reporter) -> None:
    """The loader is closed, or has failed."""
    LoaderService(unit, services.bus).end(actor, loader_id, payload)


@router.get("/runs", openapi_extra=action(Action.RUN_READ))
def list_runs(
    unit: UnitDep,
    services: ServicesDep,
    page: PageDep,
    actor: Reader,
    state: RunState | None = None,
    since_minutes: Annotated[float | None, Query(gt=0, le=525_600)] = None,
) -> Page[RunRead]:
    """Runs, newest first."""
    return LoaderService(unit, services.bus).list(actor, page, state=state, since_minutes=since_minutes)


@router.get("/runs/{run_id}", openapi_extra=action(Action.RUN_READ))
def read_run(
    run_id: UUID,
    unit: UnitDep,
    services: ServicesDep,
    actor: Reader,
    minutes: Annotated[float, Query(gt=0, le=60)] = 5,
) -> RunDetail:
    """One run with the points of the last minutes."""
    return LoaderService(unit, services.bus).get(actor, run_id, minutes=minutes)
