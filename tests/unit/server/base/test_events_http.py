"""The event stream: order, resuming, topics, policy, keep-alive, and an end when the server stops."""

import asyncio
import json
import queue
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from sqlalchemy import update

from penstock.contract.ids import uuid7
from penstock_server.api.sse import EventStream
from penstock_server.db import Catalog
from penstock_server.events import BusEvent
from penstock_server.events.catalog_bus import CatalogBus
from penstock_server.events.port import Topic
from penstock_server.models import ApiToken, Event

from .conftest import LiveServer, new_settings, start

PROJECT = uuid7()


class Reader:
    """A page: collects the frames of one stream in a thread."""

    def __init__(self, server: LiveServer, query: str = "", headers: dict[str, str] | None = None) -> None:
        self.frames: queue.Queue[dict[str, str] | None] = queue.Queue()
        self.connected = threading.Event()
        self._url = f"{server.url}/api/v1/events{query}"
        self._headers = {**server.bearer, **(headers or {})}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        assert self.connected.wait(10)

    def _read(self) -> None:
        frame: dict[str, str] = {}
        with httpx.stream("GET", self._url, headers=self._headers, timeout=30) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line == ": connected":
                    self.connected.set()
                elif line == "" and frame:
                    self.frames.put(frame)
                    frame = {}
                elif ": " in line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    frame[name] = value
        self.frames.put(None)

    def next(self) -> dict[str, str]:
        frame = self.frames.get(timeout=10)
        while frame is not None and "data" not in frame:
            frame = self.frames.get(timeout=10)
        assert frame is not None
        return frame


@contextmanager
def _serving(tmp_path: Path, empty_catalog: Path) -> Iterator[LiveServer]:
    server = start(new_settings(tmp_path, empty_catalog))
    yield server
    server.stop()


def _publish(server: LiveServer, number: int, topic: Topic = "jobs") -> None:
    server.app.state.services.bus.publish(topic, topic.rstrip("s"), PROJECT, {"number": number})


def test_events_arrive_in_order_with_kind_and_id(server: LiveServer) -> None:
    reader = Reader(server)
    for number in range(20):
        _publish(server, number)

    frames = [reader.next() for _ in range(20)]

    assert [json.loads(frame["data"])["number"] for frame in frames] == list(range(20))
    assert {frame["event"] for frame in frames} == {"job"}
    assert [int(frame["id"]) for frame in frames] == sorted(int(frame["id"]) for frame in frames)


def test_a_page_that_comes_back_gets_what_it_missed(server: LiveServer) -> None:
    for number in range(5):
        _publish(server, number)

    reader = Reader(server, headers={"Last-Event-ID": "2"})

    assert [json.loads(reader.next()["data"])["number"] for _ in range(3)] == [2, 3, 4]
    _publish(server, 5)
    assert json.loads(reader.next()["data"])["number"] == 5


@pytest.mark.parametrize("last", ["nonsense", "-3", "99999999999999999999999", "1-0"])
def test_an_id_of_another_stream_starts_from_now(server: LiveServer, last: str) -> None:
    _publish(server, 1)
    reader = Reader(server, headers={"Last-Event-ID": last})
    _publish(server, 2)

    assert json.loads(reader.next()["data"])["number"] == 2


def test_a_page_gets_the_topics_it_asks_for(server: LiveServer) -> None:
    _publish(server, 1, "runs")
    _publish(server, 2, "jobs")
    _publish(server, 3, "datasets")

    reader = Reader(server, "?topics=runs,datasets", {"Last-Event-ID": "0"})

    assert [reader.next()["event"] for _ in range(2)] == ["run", "dataset"]


def test_a_stream_needs_a_door(server: LiveServer) -> None:
    assert httpx.get(f"{server.url}/api/v1/events").status_code == 401


def test_the_streams_end_when_the_server_stops(tmp_path: Path, empty_catalog: Path) -> None:
    with _serving(tmp_path, empty_catalog) as server:
        readers = [Reader(server) for _ in range(8)]
        started_at = time.monotonic()
    for reader in readers:
        reader.thread.join(5)
        assert not reader.thread.is_alive()

    assert time.monotonic() - started_at < 6


def test_eight_open_streams_leave_room_for_requests(server: LiveServer) -> None:
    readers = [Reader(server) for _ in range(8)]
    with server.client(is_admin=True) as client:
        assert client.get("/api/v1/projects").status_code == 200
    _publish(server, 7)

    assert [json.loads(reader.next()["data"])["number"] for reader in readers] == [7] * 8


def test_publishing_never_fails_the_caller(server: LiveServer) -> None:
    server.app.state.services.bus.publish("jobs", "job", PROJECT, {"not": {"json", "at all"}})


async def _past(events: list[BusEvent]) -> AsyncIterator[BusEvent]:
    """A stream with a given past and no future, for the rules of a single answer."""
    for event in events:
        yield event
    await asyncio.Event().wait()


def _frames(
    events: list[BusEvent], count: int, *, hidden: UUID | None = None, allowed_checks: int = 100
) -> list[bytes]:
    async def collect() -> list[bytes]:
        checks = 0

        async def is_still_allowed() -> bool:
            nonlocal checks
            checks += 1
            return checks <= allowed_checks

        stream = EventStream(
            _past(events),
            is_visible=lambda event: event.project_id != hidden,
            is_still_allowed=is_still_allowed,
            stopping=asyncio.Event(),
            keep_alive_seconds=0.05,
        )
        found: list[bytes] = []
        frames = stream.frames()
        async for frame in frames:
            found.append(frame)
            if len(found) == count:
                break
        await frames.aclose()  # type: ignore[attr-defined]
        return found

    return asyncio.run(collect())


def test_events_of_a_hidden_project_are_left_out() -> None:
    hidden = uuid7()
    now = datetime.now(UTC)
    events = [BusEvent(str(n), now, "jobs", "job", hidden if n % 2 else PROJECT, {"n": n}) for n in range(6)]

    text = b"".join(_frames(events, 4, hidden=hidden)).decode()

    assert [int(part) for part in text.split('"n":')[1:] for part in part.split("}")[:1]] == [0, 2, 4]


def test_a_quiet_stream_is_kept_alive() -> None:
    assert _frames([], 3)[1:] == [b": keep-alive\n\n"] * 2


def test_a_stream_ends_when_its_caller_loses_its_rights() -> None:
    assert len(_frames([], 50, allowed_checks=2)) == 3


def test_a_revoked_token_is_seen_by_the_stream(server: LiveServer) -> None:
    with server.app.state.services.catalog.unit() as unit:
        unit.session.execute(update(ApiToken).values(revoked_at=unit.now()))
    assert httpx.get(f"{server.url}/api/v1/events", headers=server.bearer).status_code == 401


def test_a_line_break_in_a_payload_does_not_break_the_frame(server: LiveServer) -> None:
    server.app.state.services.bus.publish("jobs", "job", PROJECT, {"text": "a\nb\n\nevent: forged"})
    reader = Reader(server, headers={"Last-Event-ID": "0"})

    frame = reader.next()

    assert frame["event"] == "job"
    assert json.loads(frame["data"]) == {"text": "a\nb\n\nevent: forged"}


def test_old_events_are_removed(tmp_path: Path, empty_catalog: Path) -> None:
    settings = new_settings(tmp_path, empty_catalog)
    catalog = Catalog(settings.catalog.url)
    bus = CatalogBus(catalog)
    bus.publish("jobs", "job", PROJECT, {})
    with catalog.unit() as unit:
        unit.session.execute(update(Event).values(at=datetime(2020, 1, 1, tzinfo=UTC)))
    for _ in range(199):
        bus.publish("jobs", "job", PROJECT, {})

    assert len(bus._read_after("0", 500)) == 199
    catalog.close()
