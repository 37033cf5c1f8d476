"""`penstock worker`, `penstock migrate` and `penstock login-link`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import make_url

from penstock_server.commands.catalog_start import issue_admin_code, migrate_or_refuse, require_current_or_refuse
from penstock_server.commands.console import CommandRefused, tell, with_settings
from penstock_server.db import Catalog
from penstock_server.discovery import Discovery, read_discovery
from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import Settings, StoreSettings

_ANSWER_SECONDS = 10.0
_WORKER_MODULES = {"local": "penstock_workers.local", "celery": "penstock_workers.app"}


def run_worker(*, data_folder: Path | None, is_json: bool) -> int:
    return with_settings(lambda settings: _worker(settings, is_json=is_json), data_folder=data_folder)


def run_migrate(*, data_folder: Path | None, is_json: bool) -> int:
    return with_settings(lambda settings: _migrate(settings, is_json=is_json), data_folder=data_folder)


def run_login_link(*, data_folder: Path | None, is_json: bool) -> int:
    return with_settings(lambda settings: _login_link(settings, is_json=is_json), data_folder=data_folder)


def _worker(settings: Settings, *, is_json: bool) -> int:
    """Becomes the worker: the server names it and never imports it."""
    with _existing_catalog(settings):
        pass
    kind = settings.queue.kind
    tell(f"A {kind} worker is starting (Ctrl-C stops it)", {"kind": kind, "pid": os.getpid()}, is_json=is_json)
    os.environ["PENSTOCK_DATA_FOLDER"] = str(settings.data_folder)
    command = [sys.executable, "-m", _WORKER_MODULES[kind], *(["--json"] if is_json else [])]
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter and module)


def _migrate(settings: Settings, *, is_json: bool) -> int:
    catalog = Catalog(settings.catalog.url)
    try:
        has_changed = migrate_or_refuse(catalog)
    finally:
        catalog.close()
    if settings.store.kind == "cql":
        _replace_first_account(settings.store)
    sentence = "The catalog has been brought up to date." if has_changed else "The catalog is up to date."
    tell(sentence, {"has_changed": has_changed}, is_json=is_json)
    return 0


def _replace_first_account(store: StoreSettings) -> None:
    # Imported here: the embedded way to run never loads the driver.
    from penstock_server.store.first_account import replace_first_account

    try:
        replace_first_account(store, tell=lambda line: print(line, file=sys.stderr, flush=True))
    except DependencyUnavailable as error:
        raise CommandRefused(error.detail) from None


def _login_link(settings: Settings, *, is_json: bool) -> int:
    found = read_discovery(settings.discovery_file)
    link = (_link_of_server(found) if found is not None else None) or _link_of_catalog(settings)
    tell(link, {"login_url": link}, is_json=is_json)
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
    with _existing_catalog(settings) as catalog:
        made = issue_admin_code(catalog, minutes=settings.auth.code_minutes)
    return f"{settings.server.url}/login#code={made.code}"


@contextmanager
def _existing_catalog(settings: Settings) -> Iterator[Catalog]:
    """The catalog that a server of this version has made; refuses when there is none."""
    database = make_url(settings.catalog.url)
    if database.get_backend_name() == "sqlite" and not Path(database.database or "").is_file():
        raise CommandRefused(
            f"no server runs on this machine and there is no catalog in {settings.data_folder}: start one with "
            "`penstock up`, or name its folder with --data-folder"
        )
    catalog = Catalog(settings.catalog.url)
    try:
        require_current_or_refuse(catalog)
        yield catalog
    finally:
        catalog.close()
