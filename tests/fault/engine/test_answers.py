"""Answers that are missing, damaged or another's (storage.md 6.1: S5 and S6)."""

import pytest
from fault.engine.ring import EngineRing
from fault.engine.samples import Samples

from harness.soak import repetitions

pytestmark = pytest.mark.timeout(900)


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
    store = ring.store()
    consumer = ring.consumer(store)
    consumer.run()
    before = ring.count(counter)
    # One answer in a thousand.
    ring.shape(**{fault: 1_000 * ring.samples.mean_bytes}, seed=6)
    wanted = before + repetitions(3, 100)
    for _ in consumer.epochs(until=lambda: ring.count(counter) >= wanted):
        pass
    damaged = ring.count(counter) - before
    found = consumer.engine.stats()["retries"] + store.counters()["escalations"]
    # A bit may also fall where it does no harm, and of two copies of a late answer one may be enough.
    assert found >= damaged // 2
    assert consumer.engine.failures() == []
