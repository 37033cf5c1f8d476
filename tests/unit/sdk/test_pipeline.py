"""The thread between engine and user, with an engine that does what the test says."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock._errors import EngineClosed, SampleMissing
from penstock._pipeline import DEPTH, Lost, Pipeline


class FakeEngine:
    """Writes down what it is asked; batches come when the test lets them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.changed = threading.Condition()
        self.batches: list[Any] = []
        self.is_waiting = False

    def resume(self, state: str) -> None:
        self.calls.append(state)

    def start_epoch(self, epoch: int) -> None:
        self.calls.append(epoch)

    def next_batch(self) -> Any:
        with self.changed:
            self.is_waiting = True
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.batches, timeout=30)
            self.is_waiting = False
            batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        return batch

    def give(self, *batches: Any) -> None:
        with self.changed:
            self.batches += batches
            self.changed.notify_all()

    def wait_until_asked(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.is_waiting, timeout=30)


class Echo:
    def assemble(self, native: Any) -> Any:
        return native


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def pipeline(engine: FakeEngine) -> Iterator[Pipeline]:
    made = Pipeline(cast(Any, engine), cast(Any, Echo()))
    yield made
    engine.give(None)
    made.close()


def test_a_start_enters_its_epoch_where_the_state_stands(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(3, "state-3")
    engine.give("a", "b", None)
    found: list[Any] = [pipeline.next() for _ in range(4)]
    assert found == ["a", "b", None, None]
    assert engine.calls == ["state-3", 3]


def test_what_was_made_for_an_older_start_is_thrown_away(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "state-0")
    engine.wait_until_asked()
    pipeline.start(1, "state-1")
    pipeline.start(5, "state-5")
    engine.give("stale", "fresh")
    assert cast(Any, pipeline.next()) == "fresh"
    # The start in between was never wanted: it must not use up the state of the last one.
    assert engine.calls == ["state-0", 0, "state-5", 5]


def test_a_cancelled_start_is_not_entered(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "state-0")
    engine.wait_until_asked()
    pipeline.start(1, "state-1")
    pipeline.cancel()
    engine.give("stale")
    with engine.changed:
        assert not engine.changed.wait_for(lambda: not engine.batches and engine.is_waiting, timeout=0.3)
    pipeline.start(2, "state-2")
    engine.give("fresh")
    assert cast(Any, pipeline.next()) == "fresh"
    assert engine.calls == ["state-0", 0, "state-2", 2]


def test_no_more_is_made_than_one_ahead(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.give(*range(DEPTH + 3))
    assert cast(Any, pipeline.next()) == 0
    with engine.changed:
        assert len(engine.batches) >= 2


def test_a_store_error_stands_for_its_batch_and_others_stay(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    gone = SampleMissing("gone")
    gone.seq = 4
    engine.give(gone, "next", RuntimeError("broken"))
    assert pipeline.next() == Lost(gone, 4)
    assert cast(Any, pipeline.next()) == "next"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            pipeline.next()
    pipeline.start(1, "s")
    engine.give("again")
    assert cast(Any, pipeline.next()) == "again"


def test_a_batch_given_back_comes_again(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.give("a", "b", None)
    pipeline.give_back(cast(Any, pipeline.next()))
    found: list[Any] = [pipeline.next() for _ in range(3)]
    assert found == ["a", "b", None]


def test_closing_wakes_who_waits(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.wait_until_asked()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            pipeline.next()
        except EngineClosed as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    closer = threading.Thread(target=pipeline.close)
    waiter.start()
    closer.start()
    waiter.join(30)
    engine.give(None)
    closer.join(30)
    assert len(caught) == 1
    assert not closer.is_alive()
