"""Samples of a version: lists, facets and bytes."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize
from penstock_server.api.pagination import Page, PageDep
from penstock_server.api.querying import QueryingDep
from penstock_server.domain.samples.schemas import FacetsRead, SampleDetail, SampleRead
from penstock_server.domain.samples.service import SampleService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/datasets/{dataset}/versions/{version}", tags=["samples"])

ReaderDep = Annotated[Actor, Depends(authorize(Action.SAMPLE_READ))]
FilterQuery = Annotated[str | None, Query(max_length=8192)]

# Bytes that somebody uploaded: never sniffed, never run, never framed.
_UNTRUSTED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "private, max-age=86400, immutable",
}


def sample_service(unit: UnitDep, parts: ServicesDep, querying: QueryingDep) -> SampleService:
    return SampleService(unit, parts.store, parts.bus, querying.copies)


ServiceDep = Annotated[SampleService, Depends(sample_service)]


@router.get("/samples", openapi_extra=action(Action.SAMPLE_READ))
async def list_samples(
    dataset: str,
    version: str,
    page: PageDep,
    service: ServiceDep,
    querying: QueryingDep,
    actor: ReaderDep,
    filter: FilterQuery = None,
    order: Annotated[str, Query(max_length=70)] = "random",
    seed: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    offset: Annotated[int | None, Query(ge=0, lt=1 << 53)] = None,
) -> Page[SampleRead]:
    """Samples of a filter in an order (`random`, `plan`, a column or `-column`); `offset` jumps instead of a cursor."""
    return await querying.browse(
        service.page,
        dataset,
        version,
        page,
        actor=actor,
        filter_text=filter,
        order_name=order,
        seed=seed,
        offset=offset,
    )


@router.get("/facets", openapi_extra=action(Action.SAMPLE_READ))
async def get_facets(
    dataset: str,
    version: str,
    service: ServiceDep,
    querying: QueryingDep,
    actor: ReaderDep,
    columns: Annotated[str, Query(max_length=4000)],
    filter: FilterQuery = None,
) -> FacetsRead:
    """Counts of values, or ranges, of columns (a list with commas) among the samples of a filter."""
    names = [name.strip() for name in columns.split(",") if name.strip()]
    return await querying.heavy(service.facets, dataset, version, columns=names, filter_text=filter, actor=actor)


@router.get("/samples/{sample_id}", openapi_extra=action(Action.SAMPLE_READ))
async def get_sample(
    dataset: str, version: str, sample_id: UUID, service: ServiceDep, querying: QueryingDep, actor: ReaderDep
) -> SampleDetail:
    """One sample with checksums and addresses of its fields."""
    return await querying.browse(service.get, dataset, version, sample_id, actor=actor)


@router.get(
    "/samples/{sample_id}/thumbnail",
    openapi_extra=action(Action.SAMPLE_READ),
    response_class=Response,
    responses={200: {"content": {"image/webp": {}}, "description": "A small picture"}},
)
async def get_thumbnail(
    dataset: str, version: str, sample_id: UUID, service: ServiceDep, querying: QueryingDep, actor: ReaderDep
) -> Response:
    """The sample's picture, 160 pixels at most."""
    data = await querying.browse(service.thumbnail, dataset, version, sample_id, actor=actor)
    return Response(data, media_type="image/webp", headers=_UNTRUSTED)


@router.get(
    "/samples/{sample_id}/fields/{field}",
    openapi_extra=action(Action.SAMPLE_READ),
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The bytes as they were ingested"}},
)
async def get_field(
    dataset: str,
    version: str,
    sample_id: UUID,
    field: str,
    service: ServiceDep,
    querying: QueryingDep,
    actor: ReaderDep,
) -> Response:
    """The bytes of one field; pictures can be shown in place, everything else is a download."""
    found = await querying.browse(service.field, dataset, version, sample_id, field, actor=actor)
    headers = {**_UNTRUSTED, "ETag": f'"{found.checksum}"'}
    if not found.media_type.startswith("image/"):
        headers["Content-Disposition"] = f'attachment; filename="{found.file_name}"'
    return Response(found.data, media_type=found.media_type, headers=headers)
