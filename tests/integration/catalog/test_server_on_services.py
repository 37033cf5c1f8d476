"""The HTTP server on PostgreSQL and Redis: the same doors, and a clear answer while a service is away."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from harness.postgres import PostgresServer
from harness.redis_server import RedisServer
from penstock.contract.ids import uuid7
from penstock_server.app import create_app
from penstock_server.commands.catalog_start import ensure_first_rows
from penstock_server.db.migrations import migrate
from penstock_server.serving import HttpServer
from penstock_server.settings import Settings


@pytest.fixture
def app(database: str, redis_url: str, tmp_path: Path) -> FastAPI:
    settings = Settings.model_validate(
        {
            "data_folder": tmp_path,
            "state_folder": tmp_path,
            "catalog": {"url": database},
            "events": {"kind": "redis", "redis_url": redis_url},
        }
    )
    app = create_app(settings)
    migrate(app.state.services.catalog)
    return app


@pytest.fixture
def client(app: FastAPI) -> Iterator[httpx.Client]:
    rows = ensure_first_rows(app.state.services.catalog, code_minutes=10)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    started = threading.Event()
    server = HttpServer(app, app.state.services.settings.server, on_started=started.set, on_stopping=lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert started.wait(30)
    bearer = {"Authorization": f"Bearer {rows.token}"}
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with httpx.Client(base_url=url, headers=bearer, timeout=30) as client:
        yield client
    server.should_exit = True
    thread.join(10)


def test_it_is_ready_and_its_doors_work(client: httpx.Client) -> None:
    code = client.post("/api/v1/session/code").json()["code"]
    made = client.post("/api/v1/tokens", json={"name": "x"}, headers={"Idempotency-Key": "k"})
    again = client.post("/api/v1/tokens", json={"name": "x"}, headers={"Idempotency-Key": "k"})

    assert client.get("/readyz").json()["status"] == "ready"
    assert client.post("/api/v1/session", json={"code": code}).status_code == 200
    assert client.post("/api/v1/session", json={"code": code}).status_code == 401
    assert (made.status_code, again.status_code) == (201, 409)


def test_events_pass_through_redis(app: FastAPI, client: httpx.Client) -> None:
    bus = app.state.services.bus
    with client.stream("GET", "/api/v1/events") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        bus.publish("jobs", "job", uuid7(), {"n": 1})
        assert next(line for line in lines if line.startswith("data: ")) == 'data: {"n":1}'


def test_a_catalog_that_is_away_is_a_503_until_it_is_back(client: httpx.Client, postgres: PostgresServer) -> None:
    assert client.get("/api/v1/projects").status_code == 200
    postgres.kill()
    away = client.get("/api/v1/projects")
    readiness = client.get("/readyz")

    assert (away.status_code, away.json()["code"]) == (503, "catalog.unavailable")
    assert away.headers["retry-after"]
    assert readiness.status_code == 503
    assert not readiness.json()["checks"]["catalog"]["ok"]
    assert client.get("/healthz").status_code == 200

    postgres.restart()

    assert client.get("/api/v1/projects").status_code == 200


def test_a_redis_that_is_away_stops_only_the_news(client: httpx.Client, redis_server: RedisServer) -> None:
    redis_server.kill()

    assert client.get("/api/v1/events").json()["code"] == "queue.unavailable"
    assert client.post("/api/v1/tokens", json={"name": "x"}).status_code == 201
    assert not client.get("/readyz").json()["checks"]["events"]["ok"]

    redis_server.restart()

    with client.stream("GET", "/api/v1/events") as answer:
        assert answer.status_code == 200
