"""Every error is a problem+json with a code, a request id and no secrets of the server."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Annotated

import pytest
import structlog
from fastapi import APIRouter, Body, Depends, FastAPI
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from penstock.contract.codes import ErrorCode
from penstock_server.api.deps import UnitDep, action, authorize
from penstock_server.api.routes import RouteWithoutDoor, add_router
from penstock_server.errors import Conflict, DependencyUnavailable
from penstock_server.policy import Action, Actor
from penstock_server.settings import Settings

from .conftest import LiveServer

Starter = Callable[..., LiveServer]


def _trouble(app: FastAPI) -> None:
    router = APIRouter(prefix="/trouble")
    may = Depends(authorize(Action.DATASET_READ))
    extra = action(Action.DATASET_READ)

    @router.get("/bug", openapi_extra=extra, dependencies=[may])
    def bug() -> None:
        raise RuntimeError("the password is hunter2")

    @router.get("/conflict", openapi_extra=extra, dependencies=[may])
    def conflict() -> None:
        raise Conflict(ErrorCode.DATASET_EXISTS, "it is there", context={"dataset": "demo"})

    @router.get("/store", openapi_extra=extra, dependencies=[may])
    def store() -> None:
        raise DependencyUnavailable(ErrorCode.STORE_UNAVAILABLE, "the store is away")

    @router.get("/catalog", openapi_extra=extra, dependencies=[may])
    def catalog() -> None:
        raise OperationalError("SELECT secret", {}, Exception("connection to 127.0.0.1 refused"))

    @router.post("/echo", openapi_extra=extra, dependencies=[may])
    def echo(value: Annotated[int, Body(embed=True)]) -> int:
        return value

    add_router(app, router, prefix="/api/v1")


@pytest.fixture(scope="module")
def trouble(start_server: Starter, settings: Settings) -> LiveServer:
    return start_server(settings, _trouble)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/trouble/conflict", 409, "dataset.exists"),
        ("/api/v1/trouble/store", 503, "store.unavailable"),
        ("/api/v1/trouble/catalog", 503, "catalog.unavailable"),
        ("/api/v1/trouble/bug", 500, "server.internal"),
        ("/api/v1/no/such/route", 404, "request.not_found"),
        ("/assets/none.js", 404, "request.not_found"),
        ("/api/v1/tokens?limit=0", 422, "request.invalid"),
        ("/api/v1/tokens?cursor=nonsense", 422, "request.invalid"),
        ("/api/v1/events?topics=weather", 422, "request.invalid"),
    ],
)
def test_an_error_has_the_shape_and_the_code(trouble: LiveServer, path: str, status: int, code: str) -> None:
    with trouble.client(is_admin=True) as client:
        answer = client.get(path)

    body = answer.json()
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code", "request_id", "context"} <= set(body)
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == answer.headers["x-request-id"]
    assert "hunter2" not in answer.text
    assert "SELECT" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_wrong_method_is_405_and_says_which_are_right(trouble: LiveServer) -> None:
    with trouble.client(is_admin=True) as client:
        answer = client.put("/api/v1/tokens")

    assert answer.status_code == 405
    assert answer.json()["code"] == "request.method_not_allowed"
    assert "GET" in answer.headers["allow"]


def test_validation_names_the_place_by_json_pointer(trouble: LiveServer) -> None:
    with trouble.client(is_admin=True) as client:
        missing = client.post("/api/v1/tokens", json={"nme": "x"}).json()
        query = client.get("/api/v1/tokens?limit=9999").json()
        broken = client.post("/api/v1/tokens", content=b"{", headers={"Content-Type": "application/json"}).json()

    assert {error["pointer"] for error in missing["errors"]} == {"/name", "/nme"}
    assert query["errors"][0]["pointer"] == "/query/limit"
    assert broken["errors"][0]["pointer"] == ""
    assert "no JSON" in broken["detail"]


def test_a_bug_is_logged_once_under_its_request_id(trouble: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with capture_logs([structlog.contextvars.merge_contextvars]) as logs, trouble.client(is_admin=True) as client:
        answer = client.get("/api/v1/trouble/bug", headers={"X-Request-ID": "my-request-0001"})
        _wait_for(lambda: any(entry["event"] == "request" for entry in logs))

    failures = [entry for entry in logs if entry["log_level"] == "error"]
    assert answer.json()["request_id"] == "my-request-0001"
    assert [entry["request_id"] for entry in failures] == ["my-request-0001"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_an_unfit_request_id_is_replaced(server: LiveServer) -> None:
    with server.client() as client:
        answer = client.get("/healthz", headers={"X-Request-ID": "a b\tc"})

    assert len(answer.headers["x-request-id"]) == 32


def test_the_access_log_has_no_query_string(server: LiveServer) -> None:
    with capture_logs() as logs, server.client(is_admin=True) as client:
        client.get("/api/v1/projects?filter=patient%3D%27anna%27")
        _wait_for(lambda: any(entry["event"] == "request" for entry in logs))

    assert "/api/v1/projects" in str(logs)
    assert "anna" not in str(logs)


def test_a_declared_body_over_the_limit_is_refused_before_it_is_read(start_server: Starter, settings: Settings) -> None:
    small = settings.model_copy(update={"server": settings.server.model_copy(update={"max_body_bytes": 2000})})
    server = start_server(small)

    with server.client(is_admin=True) as client:
        declared = client.post("/api/v1/tokens", content=b"x" * 2001)
        streamed = client.post(
            "/api/v1/tokens",
            content=iter([b"x" * 1500] * 2),
            headers={"Content-Type": "application/json"},
        )

    for answer in (declared, streamed):
        assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
        assert answer.headers["connection"] == "close"


def test_a_body_that_makes_no_progress_is_given_up(start_server: Starter, settings: Settings) -> None:
    hasty = settings.model_copy(update={"server": settings.server.model_copy(update={"body_timeout_seconds": 0.3})})
    server = start_server(hasty)
    head = f"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: {server.bearer['Authorization']}\r\n"
    with _connect(server) as raw:
        raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        answer = raw.recv(65536)

    assert b" 408 " in answer.splitlines()[0]
    assert b"application/problem+json" in answer


def test_a_head_that_is_never_finished_is_cut_off(start_server: Starter, settings: Settings) -> None:
    hasty = settings.model_copy(update={"server": settings.server.model_copy(update={"header_timeout_seconds": 0.3})})
    server = start_server(hasty)
    with _connect(server) as silent, _connect(server) as half, _connect(server) as second:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in second.recv(65536)
        second.sendall(b"GET /healthz")
        started_at = time.monotonic()
        assert [each.recv(65536) for each in (silent, half, second)] == [b"", b"", b""]

    assert time.monotonic() - started_at < 5


def test_a_slow_answer_is_not_cut_off_by_the_heads_deadline(start_server: Starter, settings: Settings) -> None:
    def slow(app: FastAPI) -> None:
        router = APIRouter()

        @router.get("/slow", openapi_extra=action(Action.HEALTH_READ))
        async def wait() -> str:
            await asyncio.sleep(0.8)
            return "done"

        add_router(app, router)

    hasty = settings.model_copy(update={"server": settings.server.model_copy(update={"header_timeout_seconds": 0.3})})
    with start_server(hasty, slow).client() as client:
        assert client.get("/slow").json() == "done"


def test_a_route_without_an_action_stops_the_start() -> None:
    router = APIRouter()

    @router.get("/open")
    def forgotten() -> None: ...

    with pytest.raises(RouteWithoutDoor, match="names no action"):
        add_router(FastAPI(), router)


def test_a_route_that_does_not_ask_for_its_action_stops_the_start() -> None:
    router = APIRouter()

    @router.get("/open", openapi_extra=action(Action.DATASET_READ))
    def forgotten(_: Annotated[Actor, Depends(authorize(Action.JOB_READ))]) -> None: ...

    with pytest.raises(RouteWithoutDoor, match=r"dataset\.read"):
        add_router(FastAPI(), router)


def test_a_commit_that_fails_is_an_error_and_not_an_answer(start_server: Starter, settings: Settings) -> None:
    def failing(app: FastAPI) -> None:
        router = APIRouter()

        @router.post("/api/v1/late", openapi_extra=action(Action.DATASET_CREATE), status_code=201)
        def late(unit: UnitDep, _: Annotated[Actor, Depends(authorize(Action.DATASET_CREATE))]) -> str:
            from penstock_server.models import ApiToken

            unit.session.add(ApiToken(name="without a user"))
            return "made"

        add_router(app, router)

    with start_server(settings, failing).client(is_admin=True) as client:
        assert client.post("/api/v1/late").status_code == 500


def test_a_caller_that_leaves_does_not_disturb_others(trouble: LiveServer) -> None:
    def leave() -> None:
        with _connect(trouble) as raw:
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

    threads = [threading.Thread(target=leave) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with trouble.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}


def _connect(server: LiveServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    return connection


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
