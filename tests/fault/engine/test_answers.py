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
    ("fault", "counter", "answers_each"),
    [
        ("flip_mean_bytes", "flips", 1),
        ("truncate_mean_bytes", "truncations", 1),
        # Two answers, each of which is another's then.
        ("swap_mean_bytes", "swaps", 2),
    ],
)
def test_s6_damaged_answers_are_counted_and_read_again(
    ring: EngineRing, fault: str, counter: str, answers_each: int
) -> None:
    consumer = ring.consumer()
    consumer.run()
    sound = Findings.of(consumer)
    assert sound.damaged == 0
    before = ring.count(counter)
    # One answer in a thousand.
    ring.shape(**{fault: 1_000 * ring.samples.mean_bytes}, seed=6)
    wanted = before + repetitions(10, 100)
    for _ in consumer.epochs(until=lambda: ring.count(counter) >= wanted):
        pass
    # What is under way has been damaged and not been found yet: it is taken before the sums are made.
    ring.shape(**{fault: None})
    consumer.run(2)
    damaged = (ring.count(counter) - before) * answers_each
    found = Findings.of(consumer)
    counted = found.damaged - sound.damaged
    # Some damage is nobody's to find: in bytes that nobody looks at (some twenty of an answer's twenty thousand), in an
    # answer that is damaged already, in one that came after its copy, or on a connection of the driver. Together that
    # is a few in a hundred on a quiet machine, and for ten answers a quarter leaves room for chance.
    copies = (found.copies - sound.copies) / (found.requests - sound.requests)
    assert counted >= damaged * (0.75 - copies), (counted, damaged, copies)
    # It is answers that are counted, not the reads that go down with their connection; a flip in a head can spoil two.
    assert counted <= damaged * 2, (counted, damaged)
    assert consumer.engine.failures() == []


@dataclass(frozen=True)
class Findings:
    """What an engine has asked for, what of it twice, and what came damaged."""

    requests: int
    copies: int
    damaged: int

    @classmethod
    def of(cls, consumer: Consumer) -> "Findings":
        stats = consumer.engine.stats()
        return cls(stats["requests"], stats["hedges"] + stats["silences"] + stats["probes"], stats["damaged"])
