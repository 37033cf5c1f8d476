"""Datasets."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response, status

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize, idempotent
from penstock_server.api.pagination import Page, PageDep
from penstock_server.domain.datasets.schemas import DatasetCreate, DatasetRead, DatasetUpdate, PlainText
from penstock_server.domain.datasets.service import DatasetService, etag
from penstock_server.domain.idempotency import Idempotency
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/datasets", tags=["datasets"])


def dataset_service(unit: UnitDep, parts: ServicesDep) -> DatasetService:
    return DatasetService(unit, parts.store, parts.bus)


ServiceDep = Annotated[DatasetService, Depends(dataset_service)]


@router.get("", openapi_extra=action(Action.DATASET_READ))
def list_datasets(
    service: ServiceDep,
    page: PageDep,
    actor: Annotated[Actor, Depends(authorize(Action.DATASET_READ))],
    query: Annotated[PlainText | None, Query(max_length=200)] = None,
) -> Page[DatasetRead]:
    """Datasets by name; `query` looks in names and descriptions."""
    return service.page(page, query=query, actor=actor)


@router.post("", status_code=status.HTTP_201_CREATED, openapi_extra=action(Action.DATASET_CREATE))
def create_dataset(
    payload: DatasetCreate,
    response: Response,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.DATASET_CREATE))],
    once: Annotated[Idempotency, Depends(idempotent(Action.DATASET_CREATE))],
) -> DatasetRead:
    """Makes an empty dataset; its schema may come with it or from the first ingest."""
    dataset = once.run(DatasetRead, lambda: service.create(payload, actor=actor))
    response.headers["Location"] = f"/api/v1/datasets/{dataset.id}"
    return dataset


@router.get("/{dataset}", openapi_extra=action(Action.DATASET_READ))
def get_dataset(
    dataset: str,
    response: Response,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.DATASET_READ))],
) -> DatasetRead:
    """One dataset, by slug or id; its ETag is what a change needs."""
    place = service.find(dataset, actor=actor)
    response.headers["ETag"] = etag(place.dataset)
    return service.read_of([place])[0]


@router.patch("/{dataset}", openapi_extra=action(Action.DATASET_UPDATE))
def update_dataset(
    dataset: str,
    payload: DatasetUpdate,
    response: Response,
    service: ServiceDep,
    actor: Annotated[Actor, Depends(authorize(Action.DATASET_UPDATE))],
    if_match: Annotated[str | None, Header(max_length=200)] = None,
) -> DatasetRead:
    """Changes the description; 412 when the dataset was changed meanwhile, 428 without If-Match."""
    changed = service.update(dataset, payload, if_match=if_match, actor=actor)
    response.headers["ETag"] = etag(service.find(str(changed.id), actor=actor).dataset)
    return changed
