"""The Celery worker of the production way to run (`celery -A penstock_workers.app:celery worker`).

A message only says "look at this job": what there is to do, who does it and what has come of it stand in the catalog.
"""

import sys
import threading
import time
from functools import cache
from typing import Any
from uuid import UUID

import structlog
from celery import Celery
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from penstock_server.composition import Services, build_services
from penstock_server.db import Catalog
from penstock_server.db.migrations import CatalogUnusable
from penstock_server.jobs.celery_queue import CeleryQueue, celery_settings
from penstock_server.jobs.names import RUN_JOB
from penstock_server.logging import configure_logging
from penstock_server.settings import Settings, SettingsInvalid, load_settings
from penstock_workers.housekeeping import Housekeeping
from penstock_workers.runner import Runner
from penstock_workers.settings import WorkerSettings, load_worker_settings
from penstock_workers.starting import refuse, wait_for_catalog
from penstock_workers.tasks import job_tasks

_log = structlog.get_logger(__name__)

# A message is worked on for this long at most (and one shard more), far below the visibility timeout.
_MESSAGE_SECONDS = 20.0
_WAKE_LIMIT = 50


class WorkerProcess:
    """The parts of one child process, made after the fork, and its sweeper."""

    def __init__(self, settings: Settings, worker: WorkerSettings) -> None:
        self._services: Services = build_services(settings)
        self._worker = worker
        self._stopping = threading.Event()
        self._runner = Runner(
            self._services,
            job_tasks(),
            lease_seconds=worker.lease_seconds,
            threads=worker.threads,
            stopping=self._stopping,
        )
        self._sweeper = threading.Thread(target=self._sweep, name="sweeper", daemon=True)
        self._sweeper.start()

    def run_job(self, job_id: UUID) -> None:
        """Work on this job for a while; more messages follow while it has more to do."""
        stop_at = time.monotonic() + _MESSAGE_SECONDS
        while self._runner.run_one(job_id):
            if time.monotonic() > stop_at:
                self._services.queue.wake(job_id)
                return

    def close(self) -> None:
        self._stopping.set()
        self._sweeper.join(timeout=self._worker.sweep_seconds + 1)
        self._services.close()

    def _sweep(self) -> None:
        """Make up for messages that were lost, and for workers that were."""
        housekeeping = Housekeeping(self._services.catalog)
        while not self._stopping.wait(self._worker.sweep_seconds):
            try:
                self._wake(self._runner.leases.sweep())
                housekeeping.run_if_due()
            except DBAPIError as error:
                _log.warning("sweeper.catalog_away", reason=type(error).__name__)
            except (KombuError, OperationalError, RedisError, OSError) as error:
                _log.warning("sweeper.queue_away", reason=type(error).__name__)

    def _wake(self, job_ids: list[UUID]) -> None:
        queue = self._services.queue
        # Messages that wait say what these would say; without this look busy workers would pile them up.
        if not job_ids or (isinstance(queue, CeleryQueue) and queue.depth()):
            return
        for job_id in job_ids[:_WAKE_LIMIT]:
            queue.wake(job_id)


def create_celery(settings: Settings, worker: WorkerSettings | None = None) -> Celery:
    """The Celery app for these settings; it connects to nothing yet."""
    options = worker or load_worker_settings()
    celery = Celery("penstock", broker=settings.queue.redis_url)
    celery.conf.update(celery_settings(), worker_concurrency=options.concurrency)
    processes: list[WorkerProcess] = []

    def start(**_: Any) -> None:
        processes.append(WorkerProcess(settings, options))

    def stop(**_: Any) -> None:
        for process in processes:
            process.close()

    def log(**_: Any) -> None:
        configure_logging(settings.log)

    # Celery keeps weak references to receivers unless told not to.
    worker_process_init.connect(start, weak=False)
    worker_process_shutdown.connect(stop, weak=False)
    setup_logging.connect(log, weak=False)

    @celery.task(name=RUN_JOB, acks_late=True, reject_on_worker_lost=True, ignore_result=True)  # type: ignore[untyped-decorator]
    def run_job(job_id: str) -> None:
        if not processes:
            # Pools without children send no signal.
            start()
        processes[0].run_job(UUID(job_id))

    return celery


def main() -> int:
    """Runs a worker until it is told to stop; a warm stop lets the shards under way end."""
    try:
        settings = load_settings()
        celery = create_celery(settings)
        _require_catalog(settings)
    except (SettingsInvalid, CatalogUnusable) as error:
        return refuse(error, is_json="--json" in sys.argv)
    celery.worker_main(["worker", "--pool=prefork", "--without-gossip", "--without-mingle", "--loglevel=INFO"])
    return 0


def _require_catalog(settings: Settings) -> None:
    catalog = Catalog(settings.catalog.url)
    try:
        wait_for_catalog(catalog, stopping=threading.Event())
    finally:
        # Before the fork: a connection must not be shared with the children.
        catalog.close()


@cache
def _app() -> Celery:
    return create_celery(load_settings())


def __getattr__(name: str) -> Celery:
    """`celery`, made when the celery command asks for it, so that importing this module reads no settings."""
    if name != "celery":
        raise AttributeError(name)
    return _app()


if __name__ == "__main__":
    sys.exit(main())
