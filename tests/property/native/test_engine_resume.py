"""A run that is saved, killed and resumed with other ranks, again and again, over several epochs."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from property.native.engine_world import EngineWorld

from penstock._native import Engine

WORLDS: dict[int, EngineWorld] = {}


class ResumedRun(RuleBasedStateMachine):
    """Ranks that step together, as a trainer's do, and sometimes die with batches in their hands."""

    @initialize(n=st.integers(1, 50), seed=st.integers(0, 99), last_batch=st.sampled_from(["partial", "pad"]))
    def begin(self, n: int, seed: int, last_batch: str) -> None:
        self.world = WORLDS.setdefault(n, EngineWorld(n))
        self.fixed: dict[str, Any] = {"seed": seed, "last_batch": last_batch}
        self.engines: list[Engine] = []
        self.epoch = 0
        self.seen: Counter[int] = Counter()
        self.saved: tuple[str, int, Counter[int]] | None = None
        self.start(1, 3, False)

    def start(self, world_size: int, batch_size: int, in_order: bool) -> None:
        for engine in self.engines:
            engine.close()
        store = self.world.store(delay_ms=[0, 1.5], seed=batch_size)
        ranks = range(world_size)
        self.engines = [
            self.world.engine(
                store, rank=rank, world_size=world_size, batch_size=batch_size, in_order=in_order, **self.fixed
            )
            for rank in ranks
        ]
        for engine in self.engines:
            if self.saved is not None:
                engine.resume(self.saved[0])
            engine.start_epoch(self.epoch)

    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            batches = [engine.next_batch() for engine in self.engines]
            if any(batch is None for batch in batches):
                assert batches == [None] * len(batches), "all ranks end at the same step"
                self.end_epoch()
                return
            for engine, batch in zip(self.engines, batches, strict=True):
                assert batch is not None
                assert batch.epoch == self.epoch
                self.seen.update(row.position for row in self.world.rows(batch) if row.is_valid)
                engine.ack(batch.seq)

    def end_epoch(self) -> None:
        assert sorted(self.seen.elements()) == list(range(self.world.n))
        self.epoch += 1
        self.seen = Counter()
        for engine in self.engines:
            engine.start_epoch(self.epoch)

    @rule()
    def save(self) -> None:
        merged = Engine.merge_states([engine.state() for engine in self.engines])
        epoch, done, _ = self.engines[0].resume(merged)  # only to read it: starting anew drops it again
        if epoch != self.epoch:
            assert (epoch, done) == (self.epoch + 1, 0)
            assert len(self.seen) == self.world.n
            self.end_epoch()
        else:
            self.start_again_from(merged)
        self.saved = (merged, self.epoch, self.seen.copy())

    def start_again_from(self, merged: str) -> None:
        for engine in self.engines:
            engine.resume(merged)
            engine.start_epoch(self.epoch)

    @rule(world_size=st.integers(1, 4), batch_size=st.integers(1, 8), in_order=st.booleans(), lost=st.integers(0, 2))
    def die_and_come_back(self, world_size: int, batch_size: int, in_order: bool, lost: int) -> None:
        for engine in self.engines:
            for _ in range(lost):
                engine.next_batch()
        if self.saved is None:
            self.epoch, self.seen = 0, Counter()
        else:
            self.epoch, self.seen = self.saved[1], self.saved[2].copy()
        self.start(world_size, batch_size, in_order)

    @invariant()
    def nothing_comes_twice(self) -> None:
        assert all(times == 1 for times in getattr(self, "seen", Counter()).values())

    def teardown(self) -> None:
        for engine in getattr(self, "engines", []):
            engine.close()


ResumedRun.TestCase.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestResumedRun = ResumedRun.TestCase
