"""The worker of the embedded way to run: one process that polls the catalog (`python -m penstock_workers.local`)."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

import structlog
from sqlalchemy.exc import DBAPIError

from penstock_server.child import LIFELINE_OPTION, give_signs_of_life
from penstock_server.composition import build_services
from penstock_server.db.migrations import CatalogUnusable
from penstock_server.logging import configure_logging
from penstock_server.settings import Settings, SettingsInvalid, load_settings
from penstock_workers.housekeeping import Housekeeping
from penstock_workers.runner import Runner
from penstock_workers.settings import WorkerSettings, load_worker_settings
from penstock_workers.starting import CATALOG_WAIT_SECONDS, refuse, wait_for_catalog
from penstock_workers.tasks import job_tasks

_log = structlog.get_logger(__name__)
_PARENT_POLL_SECONDS = 0.5
# How long work may take to notice that it should stop, before the process ends without it.
_STOP_GRACE_SECONDS = 10.0


def run_worker(settings: Settings, worker: WorkerSettings, *, stopping: threading.Event) -> None:
    """Work until `stopping` is set; what is under way goes back for others. Raises CatalogUnusable."""
    services = build_services(settings)
    runner = Runner(
        services, job_tasks(), lease_seconds=worker.lease_seconds, threads=worker.threads, stopping=stopping
    )
    housekeeping = Housekeeping(services.catalog)
    try:
        wait_for_catalog(services.catalog, stopping=stopping)
        _log.info("worker.started", pid=os.getpid())
        while not stopping.is_set():
            try:
                if runner.run_one():
                    continue
                runner.leases.sweep()
                housekeeping.run_if_due()
                stopping.wait(worker.poll_seconds)
            except DBAPIError as error:
                _log.warning("worker.catalog_away", reason=type(error).__name__)
                stopping.wait(CATALOG_WAIT_SECONDS)
    finally:
        services.close()
        _log.info("worker.stopped", pid=os.getpid())


def watch_parent(parent_pid: int, stopping: threading.Event) -> None:
    """Stop when the process that started this one is gone."""
    while os.getppid() == parent_pid and not stopping.wait(_PARENT_POLL_SECONDS):
        pass
    stopping.set()


def end_after_grace(stopping: threading.Event) -> None:
    """A call that hangs must not keep a stopped worker alive; a lease that is not given back runs out."""
    stopping.wait()
    time.sleep(_STOP_GRACE_SECONDS)
    _log.error("worker.killed_itself", pid=os.getpid(), grace_seconds=_STOP_GRACE_SECONDS)
    os._exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock worker", description=__doc__)
    parser.add_argument("--parent", type=int, default=None, help="end when this process is no longer the parent")
    parser.add_argument(LIFELINE_OPTION, type=int, default=None, help="handle of a pipe for signs of life")
    parser.add_argument("--json", action="store_true", help="say in JSON why it does not start")
    options = parser.parse_args(arguments)
    try:
        settings, worker = load_settings(), load_worker_settings()
    except SettingsInvalid as error:
        return refuse(error, is_json=options.json)
    configure_logging(settings.log)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    threading.Thread(target=end_after_grace, args=(stopping,), daemon=True).start()
    # Started by `penstock up` the parent is known; alone, there is nobody to follow.
    if options.parent is not None:
        threading.Thread(target=watch_parent, args=(options.parent, stopping), daemon=True).start()
    if options.lifeline is not None:
        give_signs_of_life(options.lifeline)
    try:
        run_worker(settings, worker, stopping=stopping)
    except CatalogUnusable as error:
        return refuse(error, is_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
