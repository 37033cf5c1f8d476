"""Splits of a dataset, and what a loader needs to stream one of their subsets."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response, status

from penstock.contract.members import MEDIA_TYPE
from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize, idempotent
from penstock_server.api.pagination import Page, PageDep
from penstock_server.api.querying import QueryingDep
from penstock_server.domain.idempotency import Idempotency
from penstock_server.domain.splits.planner import SplitPlanner
from penstock_server.domain.splits.schemas import LoaderPlan, ResolveRequest, SplitCreate, SplitRead
from penstock_server.domain.splits.service import SplitService
from penstock_server.policy import Action, Actor

router = APIRouter(tags=["splits"])


def split_service(unit: UnitDep, parts: ServicesDep) -> SplitService:
    return SplitService(unit, parts.store, parts.bus)


ServiceDep = Annotated[SplitService, Depends(split_service)]


@router.get("/datasets/{dataset}/splits", openapi_extra=action(Action.SPLIT_READ))
def list_splits(
    dataset: str,
    page: PageDep,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.SPLIT_READ))],
) -> Page[SplitRead]:
    """Splits by name, newest number first."""
    return service.page(dataset, page, actor=actor)


@router.post(
    "/datasets/{dataset}/splits", status_code=status.HTTP_201_CREATED, openapi_extra=action(Action.SPLIT_CREATE)
)
async def create_split(
    dataset: str,
    payload: SplitCreate,
    response: Response,
    parts: ServicesDep,
    service: ServiceDep,
    querying: QueryingDep,
    actor: Annotated[Actor, Depends(authorize(Action.SPLIT_CREATE))],
    once: Annotated[Idempotency, Depends(idempotent(Action.SPLIT_CREATE))],
) -> SplitRead:
    """Solves a recipe on a version (the latest by default) and keeps the result for good."""
    # Solved before the first statement of this request's transaction: nobody waits for a solver.
    prepared = await querying.heavy(SplitPlanner(parts, querying.copies).prepare, dataset, payload, actor=actor)
    split = await querying.browse(once.run, SplitRead, lambda: service.publish(prepared, actor=actor))
    response.headers["Location"] = f"/api/v1/datasets/{split.dataset}/splits/{split.name}@{split.number}"
    return split


@router.get("/datasets/{dataset}/splits/{split}", openapi_extra=action(Action.SPLIT_READ))
def get_split(
    dataset: str,
    split: str,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.SPLIT_READ))],
) -> SplitRead:
    """One split: `name`, or `name@k` for an older one."""
    return service.get(dataset, split, actor=actor)


@router.post("/loaders/resolve", openapi_extra=action(Action.LOADER_RESOLVE))
def resolve_loader(
    payload: ResolveRequest,
    parts: ServicesDep,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.LOADER_RESOLVE))],
) -> LoaderPlan:
    """Pins version, split and subset, and says where their members and bytes are."""
    return service.resolve(payload, actor=actor, live_url_base=f"{parts.settings.server.url}/live")


@router.get(
    "/datasets/{dataset}/members/{object_id}",
    openapi_extra=action(Action.LOADER_RESOLVE),
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {}}, "description": "An Arrow IPC file"}},
)
def get_members(
    dataset: str,
    object_id: UUID,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.LOADER_RESOLVE))],
) -> Response:
    """One members part; it never changes."""
    data, digest = service.members(dataset, object_id, actor=actor)
    headers = {"ETag": f'"{digest}"', "Cache-Control": "private, max-age=31536000, immutable"}
    return Response(data, media_type=MEDIA_TYPE, headers=headers)
