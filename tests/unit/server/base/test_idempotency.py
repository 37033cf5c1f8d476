"""Idempotency-Key: the first answer again, one effect, scoped to the user, atomic with the effect."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy import func, select

from penstock.contract.codes import ErrorCode
from penstock_server.api.deps import UnitDep, action, authorize, idempotent
from penstock_server.api.routes import add_router
from penstock_server.domain.idempotency import Idempotency
from penstock_server.errors import Conflict
from penstock_server.models import CatalogMark, IdempotencyKey
from penstock_server.policy import Action, Actor

from .conftest import LiveServer, new_settings, start


class Mark(BaseModel):
    key: str
    is_refused: bool = False


def _marks(app: FastAPI) -> None:
    router = APIRouter(prefix="/marks")

    @router.post("", status_code=201, openapi_extra=action(Action.DATASET_CREATE))
    def make(
        payload: Mark,
        unit: UnitDep,
        _: Annotated[Actor, Depends(authorize(Action.DATASET_CREATE))],
        once: Annotated[Idempotency, Depends(idempotent(Action.DATASET_CREATE))],
    ) -> Mark:
        def create() -> Mark:
            count = unit.session.scalar(select(func.count()).select_from(CatalogMark))
            unit.session.add(CatalogMark(key=f"{payload.key}-{count}", value=""))
            if payload.is_refused:
                raise Conflict(ErrorCode.DATASET_EXISTS, "no")
            return Mark(key=f"{payload.key}-{count}")

        return once.run(Mark, create)

    add_router(app, router, prefix="/api/v1")


@pytest.fixture
def marks(tmp_path: Path, empty_catalog: Path) -> Iterator[LiveServer]:
    server = start(new_settings(tmp_path, empty_catalog), _marks)
    yield server
    server.stop()


def _count(server: LiveServer) -> int:
    with server.app.state.services.catalog.unit(is_read_only=True) as unit:
        return unit.session.scalar(select(func.count()).select_from(CatalogMark)) or 0


def test_a_repeated_key_gives_the_first_answer(marks: LiveServer) -> None:
    with marks.client(is_admin=True) as client:
        answers = [client.post("/api/v1/marks", json={"key": "a"}, headers={"Idempotency-Key": "k"}) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert {answer.json()["key"] for answer in answers} == {"a-0"}
    assert _count(marks) == 1


def test_without_a_key_every_request_counts(marks: LiveServer) -> None:
    with marks.client(is_admin=True) as client:
        for _ in range(2):
            client.post("/api/v1/marks", json={"key": "a"})

    assert _count(marks) == 2


def test_a_key_of_another_request_is_a_conflict(marks: LiveServer) -> None:
    with marks.client(is_admin=True) as client:
        client.post("/api/v1/marks", json={"key": "a"}, headers={"Idempotency-Key": "k"})
        answer = client.post("/api/v1/marks", json={"key": "b"}, headers={"Idempotency-Key": "k"})

    assert (answer.status_code, answer.json()["code"]) == (409, "request.idempotency_conflict")
    assert _count(marks) == 1


def test_a_refused_request_leaves_its_key_free(marks: LiveServer) -> None:
    with marks.client(is_admin=True) as client:
        refused = client.post("/api/v1/marks", json={"key": "a", "is_refused": True}, headers={"Idempotency-Key": "k"})
        made = client.post("/api/v1/marks", json={"key": "a"}, headers={"Idempotency-Key": "k"})

    assert (refused.status_code, made.status_code) == (409, 201)
    assert _count(marks) == 1


def test_requests_at_the_same_time_have_one_effect(marks: LiveServer) -> None:
    found: list[str] = []

    def post() -> None:
        with marks.client(is_admin=True) as client:
            found.append(client.post("/api/v1/marks", json={"key": "a"}, headers={"Idempotency-Key": "k"}).text)

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert _count(marks) == 1


def test_the_secret_of_a_token_is_not_kept_for_a_repetition(marks: LiveServer) -> None:
    with marks.client(is_admin=True) as client:
        made = client.post("/api/v1/tokens", json={"name": "x"}, headers={"Idempotency-Key": "k"}).json()
        again = client.post("/api/v1/tokens", json={"name": "x"}, headers={"Idempotency-Key": "k"})
        names = [token["name"] for token in client.get("/api/v1/tokens").json()["items"]]
    with marks.app.state.services.catalog.unit(is_read_only=True) as unit:
        kept = str([row.body for row in unit.session.scalars(select(IdempotencyKey))])

    assert again.json()["code"] == "request.idempotency_conflict"
    assert names.count("x") == 1
    assert made["secret"] not in kept


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_an_unfit_key_is_refused(marks: LiveServer, key: str) -> None:
    with marks.client(is_admin=True) as client:
        assert client.post("/api/v1/marks", json={"key": "a"}, headers={"Idempotency-Key": key}).status_code == 422
