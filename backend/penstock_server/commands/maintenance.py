"""`penstock worker`, `penstock migrate` and `penstock login-link`."""

import os
import sys
from pathlib import Path

import httpx
from sqlalchemy import make_url

from penstock_server.commands.catalog_start import issue_admin_code, migrate_or_refuse
from penstock_server.commands.console import CommandRefused, say, with_settings
from penstock_server.db import Catalog
from penstock_server.discovery import Discovery, read_discovery
from penstock_server.settings import Settings

_ANSWER_SECONDS = 10.0
_WORKER_MODULES = {"local": "penstock_workers.local", "celery": "penstock_workers.app"}


def run_worker(*, data_folder: Path | None) -> int:
    return with_settings(_worker, data_folder=data_folder)


def run_migrate(*, data_folder: Path | None) -> int:
    return with_settings(_migrate, data_folder=data_folder)


def run_login_link(*, data_folder: Path | None) -> int:
    return with_settings(_login_link, data_folder=data_folder)


def _worker(settings: Settings) -> int:
    """Becomes the worker: the server names it and never imports it."""
    os.environ["PENSTOCK_DATA_FOLDER"] = str(settings.data_folder)
    module = _WORKER_MODULES[settings.queue.kind]
    os.execv(sys.executable, [sys.executable, "-m", module])  # noqa: S606 (our own interpreter and module)


def _migrate(settings: Settings) -> int:
    catalog = Catalog(settings.catalog.url)
    try:
        has_changed = migrate_or_refuse(catalog)
    finally:
        catalog.close()
    say("The catalog has been brought up to date." if has_changed else "The catalog is up to date.")
    return 0


def _login_link(settings: Settings) -> int:
    found = read_discovery(settings.discovery_file)
    link = _link_of_server(found) if found is not None else None
    say(link or _link_of_catalog(settings))
    return 0


def _link_of_server(found: Discovery) -> str | None:
    """Asks the local server; None when the one in the file does not run any more."""
    headers = {"Authorization": f"Bearer {found.token}"}
    try:
        answer = httpx.post(f"{found.url}/api/v1/session/code", headers=headers, timeout=_ANSWER_SECONDS)
        answer.raise_for_status()
    except (httpx.HTTPError, OSError):
        return None
    return str(answer.json()["login_url"])


def _link_of_catalog(settings: Settings) -> str:
    database = make_url(settings.catalog.url)
    if database.get_backend_name() == "sqlite" and not Path(database.database or "").is_file():
        raise CommandRefused(
            f"no server runs on this machine and there is no catalog in {settings.data_folder}: start one with "
            "`penstock up`, or name its folder with --data-folder"
        )
    catalog = Catalog(settings.catalog.url)
    try:
        made = issue_admin_code(catalog, minutes=settings.auth.code_minutes)
    finally:
        catalog.close()
    return f"{settings.server.url}/login#code={made.code}"
