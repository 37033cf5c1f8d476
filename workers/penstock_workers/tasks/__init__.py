"""What the workers can do, one module a kind of job."""

from penstock_server.jobs.names import INGEST
from penstock_workers.runner import JobTask


def job_tasks() -> dict[str, JobTask]:
    """The tasks by the kind of job that they do."""
    from penstock_workers.tasks.ingest import IngestTask

    return {INGEST: IngestTask()}
