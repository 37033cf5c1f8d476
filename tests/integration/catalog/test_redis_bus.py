"""Events on a real Redis: order, resuming, bounded memory, and a Redis that is wiped or away."""

import asyncio
import socket
import time

import pytest
import redis

from penstock.contract.ids import uuid7
from penstock_server.errors import DependencyUnavailable
from penstock_server.events.redis_bus import MAX_EVENTS, STREAM, RedisBus

PROJECT = uuid7()


def _publish(bus: RedisBus, first: int, count: int) -> None:
    for number in range(first, first + count):
        bus.publish("runs", "run", PROJECT, {"n": number})


async def _take(bus: RedisBus, count: int, *, after_id: str | None = None, first: int = 0) -> list[int]:
    events = await bus.subscribe({"runs"}, after_id)
    await asyncio.to_thread(_publish, bus, first, count)
    return [(await asyncio.wait_for(anext(events), 10)).payload["n"] for _ in range(count)]


def test_events_arrive_in_order(redis_url: str) -> None:
    bus = RedisBus(redis_url)

    assert asyncio.run(_take(bus, 50)) == list(range(50))
    bus.close()


def test_another_process_sees_them_with_all_their_parts(redis_url: str) -> None:
    writer, reader = RedisBus(redis_url), RedisBus(redis_url)

    async def follow() -> None:
        events = await reader.subscribe({"runs"})
        await asyncio.to_thread(writer.publish, "jobs", "job", PROJECT, {"not": "asked for"})
        await asyncio.to_thread(writer.publish, "runs", "run", PROJECT, {"text": "ü\n"})
        event = await asyncio.wait_for(anext(events), 10)
        assert (event.topic, event.kind, event.project_id, event.payload) == ("runs", "run", PROJECT, {"text": "ü\n"})
        assert event.at.tzinfo is not None

    asyncio.run(follow())
    writer.close()
    reader.close()


def test_a_subscriber_that_comes_back_gets_what_it_missed(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    _publish(bus, 0, 5)
    second = bus._read_after("0-0", 2)[1].id

    async def follow() -> list[int]:
        events = await bus.subscribe({"runs"}, second)
        return [(await asyncio.wait_for(anext(events), 10)).payload["n"] for _ in range(3)]

    assert asyncio.run(follow()) == [2, 3, 4]
    bus.close()


def test_a_wiped_redis_goes_on_with_what_comes_next(redis_url: str) -> None:
    bus = RedisBus(redis_url)

    async def follow() -> list[int]:
        events = await bus.subscribe({"runs"})
        await asyncio.to_thread(_publish, bus, 0, 2)
        found = [(await asyncio.wait_for(anext(events), 10)).payload["n"] for _ in range(2)]
        await asyncio.to_thread(redis.Redis.from_url(redis_url).flushall)
        await asyncio.to_thread(_publish, bus, 2, 2)
        return found + [(await asyncio.wait_for(anext(events), 10)).payload["n"] for _ in range(2)]

    assert asyncio.run(follow()) == [0, 1, 2, 3]
    bus.close()


def test_the_stream_has_a_bound(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    pipeline = client.pipeline()
    for _ in range(MAX_EVENTS + 3000):
        pipeline.xadd(STREAM, {"filler": "x"})
    pipeline.execute()
    bus = RedisBus(redis_url)
    _publish(bus, 0, 1)

    assert client.xlen(STREAM) <= MAX_EVENTS + 200
    bus.close()


def test_a_redis_that_is_away_fails_no_publisher_and_refuses_readers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        bus = RedisBus(f"redis://127.0.0.1:{closed.getsockname()[1]}/0")
        started_at = time.monotonic()
        bus.publish("runs", "run", PROJECT, {})
        assert "does not answer" in (bus.health() or "")
        with pytest.raises(DependencyUnavailable, match="try again"):
            asyncio.run(_take(bus, 1))

    assert time.monotonic() - started_at < 15
    bus.close()
