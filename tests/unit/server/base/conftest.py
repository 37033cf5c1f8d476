"""A real server on a loopback port, in this process, for the tests of the HTTP edge."""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import structlog
from fastapi import FastAPI

from penstock_server.app import create_app
from penstock_server.commands.catalog_start import FirstRows, ensure_first_rows
from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate
from penstock_server.serving import HttpServer
from penstock_server.settings import Settings


@dataclass
class LiveServer:
    app: FastAPI
    url: str
    rows: FirstRows
    http: HttpServer
    thread: threading.Thread

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.rows.token}"}

    def client(self, *, is_admin: bool = False) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.bearer if is_admin else {}, timeout=20)

    @contextmanager
    def login(self) -> Iterator[tuple[httpx.Client, str]]:
        """A browser: its cookie jar, and its CSRF token."""
        code = httpx.post(f"{self.url}/api/v1/session/code", headers=self.bearer).json()["code"]
        with self.client() as browser:
            yield browser, browser.post("/api/v1/session", json={"code": code}).json()["csrf_token"]

    def stop(self) -> None:
        self.http.should_exit = True
        self.thread.join(10)
        assert not self.thread.is_alive(), "the server did not stop"


def start(settings: Settings, change: Callable[[FastAPI], None] = lambda app: None) -> LiveServer:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    settings = settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})
    app = create_app(settings)
    change(app)
    rows = ensure_first_rows(app.state.services.catalog, code_minutes=10)
    started = threading.Event()
    http = HttpServer(app, settings.server, on_started=started.set, on_stopping=lambda: None)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert started.wait(20)
    return LiveServer(app, f"http://127.0.0.1:{port}", rows, http, thread)


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> Iterator[None]:
    """The default form draws tracebacks with every local variable, which takes seconds."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once; every server gets a copy."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.sqlite3"
    catalog = Catalog(f"sqlite:///{path}")
    migrate(catalog)
    catalog.close()
    return path


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, empty_catalog: Path) -> Settings:
    """The same for a whole file of tests; `server` alone has a catalog of its own."""
    return new_settings(tmp_path_factory.mktemp("server"), empty_catalog)


def new_settings(folder: Path, empty_catalog: Path) -> Settings:
    (folder / "data").mkdir()
    shutil.copy(empty_catalog, folder / "data" / "catalog.sqlite3")
    return Settings(data_folder=folder / "data", state_folder=folder / "state")


@pytest.fixture(scope="module")
def start_server() -> Iterator[Callable[..., LiveServer]]:
    made: list[LiveServer] = []

    def starter(settings: Settings, change: Callable[[FastAPI], None] = lambda app: None) -> LiveServer:
        made.append(start(settings, change))
        return made[-1]

    yield starter
    for server in made:
        server.stop()


@pytest.fixture
def server(tmp_path: Path, empty_catalog: Path) -> Iterator[LiveServer]:
    server = start(new_settings(tmp_path, empty_catalog))
    yield server
    server.stop()
