"""Answers that are missing, damaged or another's (storage.md 6.1: S5 and S6)."""

from dataclasses import dataclass

import pytest
from fault.engine.checker import Consumer
from fault.engine.ring import EngineRing
from fault.engine.samples import Samples

from harness.soak import repetitions, time_limit

pytestmark = pytest.mark.timeout(time_limit(900))


def test_s5_a_replica_that_missed_the_writes_loses_nothing(ring: EngineRing) -> None:
    late = Samples(repetitions(300, 2_000), seed=5)
    ring.nodes[2].kill()
    late.write(ring.store())
    ring.nodes[2].restart()
    store = ring.store()
    consumer = ring.consumer(store, late, batch_size=8)
    consumer.run(2)
    assert consumer.engine.failures() == []
    assert store.counters()["escalations"] > 0


@pytest.mark.parametrize(
    ("fault", "counter"),
    [("flip_mean_bytes", "flips"), ("truncate_mean_bytes", "truncations"), ("swap_mean_bytes", "swaps")],
)
def test_s6_damaged_answers_are_found_and_read_again(ring: EngineRing, fault: str, counter: str) -> None:
    consumer = ring.consumer()
    consumer.run()
    before = ring.count(counter)
    found_before = Findings.of(consumer)
    # One answer in a thousand.
    ring.shape(**{fault: 1_000 * ring.samples.mean_bytes}, seed=6)
    wanted = before + repetitions(3, 100)
    for _ in consumer.epochs(until=lambda: ring.count(counter) >= wanted):
        pass
    # What is under way has been damaged and not been found yet: it is taken before the sums are made.
    ring.shape(**{fault: None})
    consumer.run(2)
    damaged = ring.count(counter) - before
    found = Findings.of(consumer)
    assert damaged >= repetitions(3, 100)
    # Every read that began anew, for whatever reason; of an answer that was asked for twice one copy is enough.
    detected = found.retries - found_before.retries
    unneeded = found.second_copies - found_before.second_copies
    # Of an answer of twenty thousand bytes some twenty are names and flags that nobody looks at.
    harmless = damaged // 50 if counter == "flips" else 0
    assert detected + unneeded >= damaged - harmless, (detected, unneeded, damaged)
    assert consumer.engine.failures() == []


@dataclass(frozen=True)
class Findings:
    """What an engine has had to do beyond asking once."""

    retries: int
    second_copies: int

    @classmethod
    def of(cls, consumer: Consumer) -> "Findings":
        stats = consumer.engine.stats()
        return cls(stats["retries"], stats["hedges"] + stats["silences"] + stats["probes"])
