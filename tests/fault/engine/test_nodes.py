"""Nodes that die, freeze or are all away while epochs are read (storage.md 6.1: S1 to S4)."""

import random
import re
import threading
import time
from collections.abc import Callable

import pytest
from fault.engine.ring import STALL_SLACK, EngineRing

from harness.relay import Relay
from harness.soak import IS_SOAK, repetitions, time_limit
from penstock._errors import StoreUnavailable

pytestmark = pytest.mark.timeout(time_limit(900))

OUTAGE_SECONDS = 15
FREEZE_SECONDS = 20


def test_s1_a_killed_node_costs_no_sample(ring: EngineRing) -> None:
    chance = random.Random(1)
    ring.pace()
    consumer = ring.consumer()
    for victim in chance.choices(ring.nodes, k=repetitions(1, 8)):
        for killed_before in (node for node in ring.nodes if not node.is_running):
            killed_before.restart()
        fatal_step = chance.randrange(5, 40)
        for step in consumer.epoch():
            if step == fatal_step:
                victim.kill()
                consumer.forget_waits()
        consumer.run()
        assert consumer.longest_wait < 2 * STALL_SLACK
    assert consumer.engine.failures() == []


def test_s2_a_frozen_node_is_read_around_and_used_again(ring: EngineRing) -> None:
    ring.pace()
    consumer = ring.consumer()
    consumer.run()
    for number in range(repetitions(1, 4)):
        victim, relay = ring.nodes[number % 3], ring.relays[number % 3]
        victim.freeze()
        consumer.forget_waits()
        thaw_at = time.monotonic() + FREEZE_SECONDS
        for _ in consumer.epochs(until=lambda: time.monotonic() > thaw_at):  # noqa: B023  # used in this round only
            assert consumer.longest_wait < 3 * STALL_SLACK
        victim.thaw()
        deadline = time.monotonic() + 10 * STALL_SLACK
        reads = NewReads(relay)
        for _ in consumer.epochs(until=reads.have_been_answered):
            assert reads.have_been_answered() or time.monotonic() < deadline, "the node is not used again"
    assert consumer.engine.failures() == []


class NewReads:
    """Whether a node is asked and answers, from now on: what it had been asked before counts for nothing."""

    # Some sixty questions; signs of life are a tenth of it in half a minute.
    QUESTION_BYTES = 8_000
    ANSWER_BYTES = 1_000_000

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._asked_bytes = relay.stats().bytes_up
        # What it has answered when it had been asked anew.
        self._answered_bytes: int | None = None

    def have_been_answered(self) -> bool:
        stats = self._relay.stats()
        if self._answered_bytes is None:
            if stats.bytes_up < self._asked_bytes + self.QUESTION_BYTES:
                return False
            self._answered_bytes = stats.bytes_down
        return stats.bytes_down > self._answered_bytes + self.ANSWER_BYTES


def test_s3_one_node_of_three_is_enough_to_read_and_too_few_to_write(ring: EngineRing) -> None:
    ring.pace()
    store = ring.store()
    consumer = ring.consumer(store)
    for step in consumer.epoch():
        if step == 20:
            ring.nodes[0].kill()
            ring.nodes[2].kill()
            consumer.forget_waits()
    consumer.run()
    assert consumer.longest_wait < 2 * STALL_SLACK
    assert consumer.engine.failures() == []
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match='writing chunk 0 of field "image"') as refused:
        store.write("samples", bytes(16), [(bytes(16), [("image", b"nobody takes it")])])
    assert time.monotonic() - started < 5 * STALL_SLACK
    # Not that no node answers, but that too few are there for the consistency that was asked for.
    assert re.search(r"(?i)consistency.*local_?quorum", str(refused.value)), refused.value


def _refuse(ring: EngineRing) -> Callable[[], None]:
    """Nothing listens any more."""
    ring.shape(max_connections=0)
    for relay in ring.relays:
        relay.reset_all()
    return lambda: ring.shape(max_connections=None)


def _silence(ring: EngineRing) -> Callable[[], None]:
    """Connections stay, nothing moves on them."""
    ring.shape(is_stalled=True)
    return lambda: ring.shape(is_stalled=False)


def _kill(ring: EngineRing) -> Callable[[], None]:
    for node in ring.nodes:
        node.kill()

    def start() -> None:
        for node in ring.nodes:
            node.start()

    return start


OUTAGES = [_refuse, _silence, _kill] if IS_SOAK else [_refuse]


@pytest.mark.parametrize("outage", OUTAGES)
def test_s4_a_store_that_is_away_is_waited_for(
    ring: EngineRing, outage: Callable[[EngineRing], Callable[[], None]]
) -> None:
    ring.pace()
    # Three nodes that start together on two cores need longer than the usual minute.
    consumer = ring.consumer(store_wait_seconds=180 if outage is _kill else 60)
    for step in consumer.epoch():
        if step == 20:
            end = threading.Timer(OUTAGE_SECONDS, outage(ring))
            end.start()
            consumer.forget_waits()
    end.join()
    assert consumer.longest_wait > OUTAGE_SECONDS - 5, "the outage was felt"
    consumer.run()
    assert consumer.engine.failures() == []


@pytest.mark.parametrize("outage", OUTAGES)
def test_s4_without_patience_a_store_that_is_away_is_an_error(
    ring: EngineRing, outage: Callable[[EngineRing], Callable[[], None]]
) -> None:
    ring.pace()
    steps = ring.consumer(store_wait_seconds=0).epoch()
    while next(steps) < 20:
        pass
    outage(ring)
    away_at = time.monotonic()
    with pytest.raises(StoreUnavailable, match="sample"):
        list(steps)
    assert time.monotonic() - away_at < 5 * STALL_SLACK
