"""Jobs: what is under way, what has become of it, and stopping it."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, status

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize
from penstock_server.api.pagination import Page, PageDep
from penstock_server.domain.jobs.schemas import JobKind, JobRead, JobState
from penstock_server.domain.jobs.service import JobService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.get("", openapi_extra=action(Action.JOB_READ))
def list_jobs(
    unit: UnitDep,
    services: ServicesDep,
    page: PageDep,
    actor: Annotated[Actor, Depends(authorize(Action.JOB_READ))],
    state: JobState | None = None,
    kind: JobKind | None = None,
    dataset: Annotated[str | None, Query(max_length=63)] = None,
) -> Page[JobRead]:
    """Jobs, newest first."""
    jobs = JobService(unit, services.queue, services.bus)
    return jobs.list(actor, page, state=state, kind=kind, dataset=dataset)


@router.get("/{job_id}", openapi_extra=action(Action.JOB_READ))
def read_job(
    job_id: UUID,
    unit: UnitDep,
    services: ServicesDep,
    actor: Annotated[Actor, Depends(authorize(Action.JOB_READ))],
) -> JobRead:
    """One job with its progress, result or error."""
    return JobService(unit, services.queue, services.bus).get(actor, job_id)


@router.post("/{job_id}/cancel", status_code=status.HTTP_202_ACCEPTED, openapi_extra=action(Action.JOB_CANCEL))
def cancel_job(
    job_id: UUID,
    unit: UnitDep,
    services: ServicesDep,
    actor: Annotated[Actor, Depends(authorize(Action.JOB_CANCEL))],
) -> JobRead:
    """Asks for a job to stop; it publishes nothing after that."""
    return JobService(unit, services.queue, services.bus).cancel(actor, job_id)
