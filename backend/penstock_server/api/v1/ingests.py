"""Ingest requests: the folder is checked at once, the work is a job."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response, status

from penstock_server.api.deps import ServicesDep, UnitDep, action, authorize, idempotent
from penstock_server.domain.datasets.service import DatasetService
from penstock_server.domain.idempotency import Idempotency
from penstock_server.domain.jobs.schemas import IngestCreate, JobRead
from penstock_server.domain.jobs.service import JobService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/datasets/{dataset}/ingests", tags=["jobs"])


@router.post("", status_code=status.HTTP_202_ACCEPTED, openapi_extra=action(Action.INGEST_CREATE))
def create_ingest(
    dataset: str,
    payload: IngestCreate,
    response: Response,
    unit: UnitDep,
    services: ServicesDep,
    actor: Annotated[Actor, Depends(authorize(Action.INGEST_CREATE))],
    once: Annotated[Idempotency, Depends(idempotent(Action.INGEST_CREATE))],
) -> JobRead:
    """Starts to ingest a folder of the server's machine into a dataset; `Location` is the job."""

    def make() -> JobRead:
        found = DatasetService(unit, services.store, services.bus).find(
            dataset, actor=actor, action=Action.INGEST_CREATE
        )
        return JobService(unit, services.queue, services.bus).create_ingest(
            actor,
            payload,
            dataset_id=found.dataset.id,
            project_id=found.project.id,
            allowed_roots=services.settings.ingest.allowed_roots,
        )

    job = once.run(JobRead, make, status=status.HTTP_202_ACCEPTED)
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job
