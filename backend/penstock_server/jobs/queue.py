"""The port that wakes workers. Losing a wake-up loses nothing: every worker also looks into the catalog."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from penstock_server.db import Catalog
from penstock_server.settings import Settings


class JobQueue(Protocol):
    def wake(self, job_id: UUID) -> None:
        """Asks workers to look at this job now; call it by `unit.after_commit`. Never raises."""

    def health(self) -> str | None:
        """None, or what is wrong."""

    def close(self) -> None: ...


class LocalQueue:
    """Local workers poll the catalog twice a second, so there is nobody to wake.

    `worker_problem` tells what is wrong with the worker when one belongs to this process; another's is its own affair.
    """

    def __init__(self, worker_problem: Callable[[], str | None] = lambda: None) -> None:
        self._worker_problem = worker_problem

    def wake(self, job_id: UUID) -> None:
        del job_id

    def health(self) -> str | None:
        return self._worker_problem()

    def close(self) -> None:
        return None


def open_queue(settings: Settings, catalog: Catalog) -> JobQueue:
    del catalog
    if settings.queue.kind == "celery" and settings.queue.redis_url is not None:
        from penstock_server.jobs.celery_queue import CeleryQueue

        return CeleryQueue(settings.queue.redis_url)
    return LocalQueue()
