"""Versions of a dataset."""

from typing import Annotated

from fastapi import APIRouter, Depends

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize
from penstock_server.api.pagination import Page, PageDep
from penstock_server.domain.versions.schemas import VersionRead
from penstock_server.domain.versions.service import VersionService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/datasets/{dataset}/versions", tags=["versions"])

ReaderDep = Annotated[Actor, Depends(authorize(Action.VERSION_READ))]


@router.get("", openapi_extra=action(Action.VERSION_READ))
def list_versions(
    dataset: str, page: PageDep, unit: UnitDep, parts: ServicesDep, actor: ReaderDep
) -> Page[VersionRead]:
    """Published versions, newest first."""
    return VersionService(unit, parts.store, parts.bus).page(dataset, page, actor=actor)


@router.get("/{version}", openapi_extra=action(Action.VERSION_READ))
def get_version(dataset: str, version: str, unit: UnitDep, parts: ServicesDep, actor: ReaderDep) -> VersionRead:
    """One version: a number, or `latest`."""
    return VersionService(unit, parts.store, parts.bus).get(dataset, version, actor=actor)
