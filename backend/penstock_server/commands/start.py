"""The start of a server whose folder and port are its own: catalog, store, children, HTTP."""

import os
import signal
import socket
from contextlib import ExitStack
from dataclasses import replace

import structlog

from penstock_server.app import create_app
from penstock_server.commands.catalog_start import FirstRows, ensure_first_rows, migrate_or_refuse
from penstock_server.commands.children import Child, child_environment
from penstock_server.commands.console import tell
from penstock_server.composition import Services, build_services
from penstock_server.discovery import Discovery, remove_discovery, write_discovery
from penstock_server.errors import ServerError
from penstock_server.jobs.queue import LocalQueue
from penstock_server.logging import configure_logging
from penstock_server.serving import HttpServer
from penstock_server.settings import Settings

_log = structlog.get_logger(__name__)


def serve(settings: Settings, listener: socket.socket, *, is_demo: bool, has_worker: bool, is_json: bool) -> None:
    """Runs until a signal ends it."""
    configure_logging(settings.log)
    with ExitStack() as stack:
        services = build_services(settings)
        stack.callback(services.close)
        migrate_or_refuse(services.catalog)
        rows = ensure_first_rows(services.catalog, code_minutes=settings.auth.code_minutes)
        _prepare_store(services, rows)
        stack.callback(remove_discovery, settings.discovery_file, pid=os.getpid())
        children = []
        # Celery's workers are started by whoever runs the cluster: they are many and elsewhere.
        if has_worker and settings.queue.kind == "local":
            worker = _worker(settings)
            services = replace(services, queue=LocalQueue(lambda: worker.problem))
            children.append(worker)
        if is_demo:
            children.append(_demo(settings, rows, is_json=is_json))
        _serve(services, rows, listener, children, is_json=is_json)


def _prepare_store(services: Services, rows: FirstRows) -> None:
    try:
        services.store.ensure_project(rows.project)
    except ServerError as error:
        # The store may come up later: it is prepared again at its first use, and /readyz says what is missing.
        _log.warning("store.not_ready", reason=error.detail)


def _worker(settings: Settings) -> Child:
    return Child("worker", "penstock_workers.local", environment=child_environment(settings), is_kept=True)


def _demo(settings: Settings, rows: FirstRows, *, is_json: bool) -> Child:
    environment = child_environment(settings, {"PENSTOCK_URL": local_url(settings), "PENSTOCK_TOKEN": rows.token})
    # A program that reads our output waits for one document, not for the demo's.
    return Child("demo", "penstock_server.commands.demo", environment=environment, is_kept=False, is_on_stderr=is_json)


def local_url(settings: Settings) -> str:
    """How programs on this machine reach the server, whatever its public address is."""
    return settings.server.model_copy(update={"public_url": None}).url


def _serve(
    services: Services, rows: FirstRows, listener: socket.socket, children: list[Child], *, is_json: bool
) -> None:
    settings = services.settings

    def on_started() -> None:
        url, folder = settings.server.url, str(settings.data_folder)
        found = Discovery(url=local_url(settings), token=rows.token, pid=os.getpid(), data_folder=folder)
        write_discovery(settings.discovery_file, found)
        for child in children:
            child.start()
        login_url = f"{url}/login#code={rows.login_code.code}"
        document = {"url": url, "login_url": login_url, "pid": os.getpid()}
        tell(f"Penstock is running, open {login_url} (Ctrl-C stops it)", document, is_json=is_json)

    def on_stopping() -> None:
        for child in children:
            child.ask_to_stop()

    server = HttpServer(
        create_app(settings, services=services), settings.server, on_started=on_started, on_stopping=on_stopping
    )
    signal.signal(signal.SIGHUP, server.handle_exit)
    try:
        server.run(sockets=[listener])
    finally:
        for child in children:
            child.stop()
