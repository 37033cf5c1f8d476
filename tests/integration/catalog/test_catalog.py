"""The same promises on both databases: clock, types, isolation, idempotency, the order of events."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from penstock.contract.ids import uuid7
from penstock_server.commands.catalog_start import ensure_first_rows
from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate
from penstock_server.domain.idempotency import Idempotency
from penstock_server.domain.tokens.service import TokenService
from penstock_server.domain.users.service import UserService
from penstock_server.errors import Unauthenticated
from penstock_server.events.catalog_bus import CatalogBus
from penstock_server.models import CatalogMark, Dataset, Event, Job

PROJECT = uuid7()


@pytest.fixture
def catalog(empty_catalog: Catalog) -> Catalog:
    migrate(empty_catalog)
    return empty_catalog


class Answer(BaseModel):
    text: str


def test_the_clock_is_aware_and_goes_on_inside_a_transaction(catalog: Catalog) -> None:
    with catalog.unit() as unit:
        first = unit.now()
        time.sleep(0.05)
        second = unit.now()

    assert first.tzinfo is UTC
    assert timedelta(seconds=0.03) < second - first < timedelta(seconds=5)
    assert abs(first - datetime.now(UTC)) < timedelta(seconds=5)


def test_json_moments_and_ids_come_back_as_they_went(catalog: Catalog) -> None:
    moment = datetime(2026, 11, 16, 12, 30, 0, 123456, tzinfo=UTC)
    job = Job(kind="ingest", payload={"a": [1, None, {"b": "ü"}]}, created_at=moment, result=None)
    with catalog.unit() as unit:
        unit.session.add(job)
    with catalog.unit(is_read_only=True) as unit:
        found = unit.session.scalars(select(Job)).one()
        is_null = unit.session.scalar(select(func.count()).where(Job.result.is_(None)))

    assert (found.id, found.payload, found.created_at) == (job.id, job.payload, moment)
    assert (found.state, found.attempts, found.cancel_requested, found.progress) == ("queued", 0, False, {})
    assert is_null == 1


def test_foreign_keys_and_states_are_held(catalog: Catalog) -> None:
    now = datetime.now(UTC)
    with pytest.raises(DBAPIError), catalog.unit() as unit:
        unit.session.add(Dataset(project_id=uuid7(), slug="x", schema={}, created_at=now, updated_at=now))
    with pytest.raises(DBAPIError), catalog.unit() as unit:
        unit.session.add(Job(kind="ingest", state="asleep", payload={}, created_at=now))


def test_the_first_rows_are_made_once_and_the_token_is_new(catalog: Catalog) -> None:
    first = ensure_first_rows(catalog, code_minutes=10)
    second = ensure_first_rows(catalog, code_minutes=10)

    assert first.project.id == second.project.id
    assert first.project.keyspace == f"ps_{first.project.id.hex}"
    with catalog.unit(is_read_only=True) as unit:
        assert TokenService(unit).find(first.token) is None
        assert TokenService(unit).find(second.token) is not None


def test_a_login_code_is_used_once_by_many(catalog: Catalog) -> None:
    rows = ensure_first_rows(catalog, code_minutes=10)
    outcomes: list[str] = []

    def use() -> None:
        try:
            with catalog.unit() as unit:
                UserService(unit).open_session(rows.login_code.code, hours=1)
            outcomes.append("in")
        except Unauthenticated:
            outcomes.append("out")

    _together(use, 8)

    assert sorted(outcomes) == ["in"] + ["out"] * 7


def test_an_idempotency_key_has_one_effect_however_many_come_at_once(catalog: Catalog) -> None:
    with catalog.unit() as unit:
        user_id = UserService(unit).ensure_admin().id
    answers: list[str] = []

    def post() -> None:
        with catalog.unit() as unit:
            once = Idempotency(unit, user_id, "k", operation="POST /x", body=b"{}")

            def make() -> Answer:
                count = unit.session.scalar(select(func.count()).select_from(CatalogMark))
                time.sleep(0.05)
                unit.session.add(CatalogMark(key=str(uuid7()), value=""))
                return Answer(text=f"made after {count}")

            answers.append(once.run(Answer, make).text)

    _together(post, 6)

    assert answers == ["made after 0"] * 6
    with catalog.unit(is_read_only=True) as unit:
        assert unit.session.scalar(select(func.count()).select_from(CatalogMark)) == 1


def test_no_event_is_skipped_by_a_tail_while_many_publish(catalog: Catalog) -> None:
    """An id that is committed after a larger one would be behind the tail's position and lost."""
    publishers, each = 4, 25

    async def follow() -> list[int]:
        bus = CatalogBus(catalog)
        events = await bus.subscribe({"jobs"})
        threads = [threading.Thread(target=publish, args=(CatalogBus(catalog), n)) for n in range(publishers)]
        for thread in threads:
            thread.start()
        found = [(await asyncio.wait_for(anext(events), 30)).payload["n"] for _ in range(publishers * each)]
        bus.close()
        assert [event async for event in events] == []
        return found

    def publish(bus: CatalogBus, number: int) -> None:
        for step in range(each):
            bus.publish("jobs", "job", PROJECT, {"n": number * each + step})

    assert sorted(asyncio.run(follow())) == list(range(publishers * each))


def test_a_subscriber_that_comes_back_misses_nothing_and_sees_nothing_twice(catalog: Catalog) -> None:
    bus = CatalogBus(catalog)
    for number in range(10):
        bus.publish("jobs", "job", PROJECT, {"n": number})
    with catalog.unit(is_read_only=True) as unit:
        third = sorted(unit.session.scalars(select(Event.id)))[2]

    async def follow() -> list[int]:
        events = await bus.subscribe({"jobs"}, str(third))
        bus.publish("jobs", "job", PROJECT, {"n": 10})
        found = [(await asyncio.wait_for(anext(events), 10)).payload["n"] for _ in range(8)]
        bus.close()
        return found

    assert asyncio.run(follow()) == list(range(3, 11))


def test_a_reading_unit_cannot_write_and_its_connection_can_again(catalog: Catalog) -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"), catalog.unit(is_read_only=True) as unit:
        unit.session.add(CatalogMark(key="a", value="b"))
    with catalog.unit() as unit:
        unit.session.add(CatalogMark(key="a", value="b"))


def _together(call: object, count: int) -> None:
    assert callable(call)
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
