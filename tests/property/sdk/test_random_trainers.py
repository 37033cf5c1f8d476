"""Trainers that take, stop, resume and change their minds at random still get every sample of an epoch exactly once."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.sdk.loading import indices, loader_of

from harness.soak import IS_SOAK, repetitions

ALL = Counter(range(101))
STEPS = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 9)),
    st.tuples(st.just("resume"), st.integers(1, 40)),
    st.tuples(st.sampled_from(["throw away", "same epoch", "length"]), st.just(0)),
)


class Trainer:
    """Counts by itself what it was given in each epoch."""

    def __init__(self, training: Any, options: dict[str, Any]) -> None:
        self.training = training
        self.options = options | {"fields": ["mask"], "decode": None, "shuffle": True}
        self.seen: dict[int, Counter[int]] = defaultdict(Counter)
        self.loader = loader_of(training, **self.options)
        self.running = iter(self.loader)

    def take(self, count: int) -> None:
        for _ in range(count):
            epoch = self.loader.epoch
            self.seen[epoch].update(indices(self.training, next(self.running)))
            if self.loader.epoch != epoch:
                assert self.loader.epoch == epoch + 1
                assert self.seen[epoch] == ALL
                self.running = iter(self.loader)

    def resume(self, batch_size: int) -> None:
        epoch, step, state = self.loader.epoch, self.loader.stats()["step"], self.loader.state_dict()
        self.loader.close()
        self.loader = loader_of(self.training, **self.options | {"batch_size": batch_size})
        self.loader.load_state_dict(state)
        self.running = iter(self.loader)
        assert (self.loader.epoch, self.loader.stats()["step"]) == (epoch, step)

    def length(self) -> None:
        left = 101 - sum(self.seen[self.loader.epoch].values())
        assert len(self.loader) == self.loader.stats()["step"] + -(-left // self.loader.batch_size)


@pytest.mark.timeout(repetitions(300, 3600))
@settings(
    max_examples=repetitions(25, 1000),
    derandomize=not IS_SOAK,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, max_size=14), in_order=st.booleans(), seed=st.integers(0, 3))
def test_every_epoch_is_whole_whatever_the_trainer_does(
    training: Any, steps: list[tuple[str, int]], in_order: bool, seed: int
) -> None:
    trainer = Trainer(training, {"in_order": in_order, "seed": seed})
    try:
        for what, number in steps:
            if what == "take":
                trainer.take(number)
            elif what == "resume":
                trainer.resume(number)
            elif what == "throw away":
                iter(trainer.loader)
            elif what == "same epoch":
                trainer.loader.set_epoch(trainer.loader.epoch)
            else:
                trainer.length()
        epoch = trainer.loader.epoch
        while trainer.loader.epoch == epoch:
            trainer.take(1)
        assert all(count == ALL for number, count in trainer.seen.items() if number <= epoch)
    finally:
        trainer.loader.close()
