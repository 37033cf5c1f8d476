"""The app and a server of it, as the OpenAPI file describes them."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from penstock_server.app import create_app
from penstock_server.commands.catalog_start import FirstRows, ensure_first_rows
from penstock_server.db.migrations import migrate
from penstock_server.serving import HttpServer
from penstock_server.settings import Settings


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder: Path = tmp_path_factory.mktemp("api")
    return Settings(data_folder=folder / "data", state_folder=folder / "state")


@pytest.fixture(scope="module")
def app(settings: Settings) -> FastAPI:
    return create_app(settings)


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


@pytest.fixture(scope="module")
def rows(app: FastAPI) -> FirstRows:
    catalog = app.state.services.catalog
    migrate(catalog)
    return ensure_first_rows(catalog, code_minutes=10)


@pytest.fixture(scope="module")
def client(app: FastAPI, settings: Settings, rows: FirstRows) -> Iterator[httpx.Client]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    started = threading.Event()
    server = HttpServer(app, settings.server, on_started=started.set, on_stopping=lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert started.wait(30)
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
        yield client
    server.should_exit = True
    thread.join(10)
