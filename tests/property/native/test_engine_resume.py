"""A run that is saved, killed and resumed with other ranks, again and again, over several epochs and a faulty store."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from property.native.engine_world import DATASET, EngineWorld, derived

from harness.soak import repetitions
from penstock._errors import StoreError
from penstock._native import Batch, Engine

IDLE_SECONDS = 0.05
LAST_BATCHES = st.sampled_from(["drop", "partial", "pad"])
ON_ERROR = st.sampled_from(["raise", "skip", "replace"])
# Ranks have more samples than are gone: an epoch of which a rank can read nothing at all is an error of its own.
GONE = st.sets(st.integers(0, 19), max_size=3)
FAULTS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "delay_ms": st.tuples(st.just(0.0), st.floats(0.0, 2.0)),
        "unavailable_share": st.floats(0.0, 0.15),
        "faulty_reads": st.integers(1, 2),
    }
)


@dataclass(frozen=True)
class Saved:
    """A state, and what was known when it was taken."""

    state: str
    epoch: int
    seen: Counter[int]
    raised: set[int]
    reported: set[int]


def next_step(engine: Engine) -> Batch | StoreError | None:
    try:
        return engine.next_batch()
    except StoreError as error:
        return error


class ResumedRun(RuleBasedStateMachine):
    """Ranks that step together, as a trainer's do, and sometimes die with batches in their hands."""

    @initialize(
        n=st.integers(20, 60),
        seed=st.integers(0, 99),
        last_batch=LAST_BATCHES,
        on_error=ON_ERROR,
        gone=GONE,
        faults=FAULTS,
        idle_seconds=st.sampled_from([IDLE_SECONDS, 60.0]),
    )
    def begin(
        self,
        n: int,
        seed: int,
        last_batch: str,
        on_error: str,
        gone: set[int],
        faults: dict[str, Any],
        idle_seconds: float,
    ) -> None:
        self.world = EngineWorld(n)
        self.world.store().delete("samples", DATASET, [derived("object", index) for index in gone])
        self.gone = gone
        self.faults = faults
        self.fixed: dict[str, Any] = {
            "seed": seed, "last_batch": last_batch, "on_error": on_error, "max_failed_share": 1.0,
            "idle_seconds": idle_seconds,
        }  # fmt: skip
        self.engines: list[Engine] = []
        self.epoch = 0
        self.seen: Counter[int] = Counter()
        self.index_of = {derived("sample", index): index for index in range(n)}
        # Of this epoch: what errors in the place of batches named, and what engines that are gone have reported.
        self.raised: set[int] = set()
        self.reported: set[int] = set()
        self.saved: Saved | None = None
        self.start(1, 3, False)

    def open(self, world_size: int, batch_size: int, in_order: bool) -> None:
        self.close()
        self.batch_size = batch_size
        store = self.world.store(**self.faults)
        self.engines = [
            self.world.engine(
                store, rank=rank, world_size=world_size, batch_size=batch_size, in_order=in_order, **self.fixed
            )
            for rank in range(world_size)
        ]

    def close(self) -> None:
        self.reported |= self.report()
        for engine in self.engines:
            engine.close()

    def report(self) -> set[int]:
        """What the engines say this epoch does not deliver."""
        named = set()
        for engine in self.engines:
            for epoch, sample_id, _, _, _, _, lost_with in engine.failures():
                index = self.index_of[sample_id]
                assert (index in self.gone) == (lost_with is None)
                assert lost_with is None or self.index_of[lost_with] in self.gone
                if epoch == self.epoch:
                    assert index not in named, "named by two ranks"
                    named.add(index)
        return named

    def start(self, world_size: int, batch_size: int, in_order: bool) -> None:
        self.open(world_size, batch_size, in_order)
        for engine in self.engines:
            if self.saved is not None:
                engine.resume(self.saved.state)
            engine.start_epoch(self.epoch)

    def take(self) -> list[Batch | StoreError]:
        """A step of every rank, a batch or an error; none when the epoch is over, which is on all of them at once."""
        taken = [step for engine in self.engines if (step := next_step(engine)) is not None]
        assert len(taken) in (0, len(self.engines)), "all ranks end at the same step"
        return taken

    def keep(self, taken: list[Batch | StoreError]) -> None:
        for engine, step in zip(self.engines, taken, strict=True):
            if isinstance(step, StoreError):
                assert step.sample_id is not None
                self.raised |= {self.index_of[UUID(text).bytes] for text in (step.sample_id, *step.lost_ids)}
            else:
                assert step.epoch == self.epoch
                self.world.check_bytes(step)
                self.seen.update(row.position for row in self.world.rows(step) if row.is_valid)
            assert step.seq is not None
            engine.ack(step.seq)

    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if not (taken := self.take()):
                self.end_epoch()
                return
            self.keep(taken)

    @rule()
    def rest(self) -> None:
        """So long that engines give up what they have read ahead, if they have little patience."""
        time.sleep(3 * IDLE_SECONDS)

    def end_epoch(self) -> None:
        self.check_epoch()
        for engine in self.engines:
            engine.start_epoch(self.epoch)

    def check_epoch(self) -> None:
        """Everything came or was reported, but what does not fill a batch on every rank where that is dropped."""
        reported = self.reported | self.report()
        assert not reported & set(self.seen)
        if self.fixed["on_error"] == "raise":
            assert reported == self.raised
        missing = self.world.n - len(self.seen) - len(reported)
        dropped = self.batch_size * len(self.engines) - 1 if self.fixed["last_batch"] == "drop" else 0
        assert 0 <= missing <= dropped
        self.epoch += 1
        self.seen, self.raised, self.reported = Counter(), set(), set()

    @rule()
    def save(self) -> None:
        merged = Engine.merge_states([engine.state() for engine in self.engines])
        epoch, done, _ = self.engines[0].resume(merged)  # only to read it: starting anew drops it again
        if epoch != self.epoch:
            assert (epoch, done) == (self.epoch + 1, 0)
            self.end_epoch()
        else:
            self.start_again_from(merged)
        reported = self.reported | self.report()
        self.saved = Saved(merged, self.epoch, self.seen.copy(), self.raised.copy(), reported)

    def start_again_from(self, merged: str) -> None:
        for engine in self.engines:
            engine.resume(merged)
            engine.start_epoch(self.epoch)

    @rule(world_size=st.integers(1, 4), batch_size=st.integers(1, 8), in_order=st.booleans(), lost=st.integers(0, 2))
    def die_and_come_back(self, world_size: int, batch_size: int, in_order: bool, lost: int) -> None:
        for engine in self.engines:
            for _ in range(lost):
                next_step(engine)
        saved = self.saved or Saved("", 0, Counter(), set(), set())
        self.close()
        self.engines = []
        self.epoch, self.seen = saved.epoch, saved.seen.copy()
        # What the dead have reported beyond their last state comes again, or is reported again.
        self.raised, self.reported = saved.raised.copy(), saved.reported.copy()
        self.start(world_size, batch_size, in_order)

    @rule(batch_size=st.integers(1, 8), in_order=st.booleans(), taken=st.integers(0, 4), kept=st.integers(0, 15))
    def go_on_alone(self, batch_size: int, in_order: bool, taken: int, kept: int) -> None:
        """Each rank goes on from a state of its own, after acknowledging some of the batches that it took."""
        for step in range(taken):
            if not (steps := self.take()):
                break
            if kept >> step & 1:
                self.keep(steps)
        states = [engine.state() for engine in self.engines]
        standings = {engine.resume(state) for engine, state in zip(self.engines, states, strict=True)}
        assert len(standings) == 1, "all ranks have as many steps left"
        if standings.pop()[0] != self.epoch:
            self.check_epoch()
        self.open(len(self.engines), batch_size, in_order)
        for engine, state in zip(self.engines, states, strict=True):
            engine.resume(state)
            engine.start_epoch(self.epoch)

    @invariant()
    def nothing_comes_twice(self) -> None:
        assert all(times == 1 for times in getattr(self, "seen", Counter()).values())

    def teardown(self) -> None:
        for engine in getattr(self, "engines", []):
            engine.close()


ResumedRun.TestCase.settings = settings(
    max_examples=repetitions(20, 1_000),
    stateful_step_count=repetitions(20, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestResumedRun = ResumedRun.TestCase
