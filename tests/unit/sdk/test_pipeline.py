"""The thread between engine and user, with an engine that does what the test says."""

import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock._errors import EngineClosed, SampleMissing, StateError
from penstock._pipeline import DEPTH, Lost, Pipeline


class FakeEngine:
    """Writes down what it is asked; batches come when the test lets them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.changed = threading.Condition()
        self.batches: list[Any] = []
        self.is_waiting = False
        self.is_interrupted = False

    def resume(self, state: str) -> Any:
        if state == "refused":
            raise StateError("refused")
        self.calls.append(state)
        return f"stands at {state}"

    def state(self) -> str:
        return "acknowledged"

    def start_epoch(self, epoch: int) -> None:
        with self.changed:
            self.calls.append(epoch)
            self.is_interrupted = False
            self.changed.notify_all()

    def interrupt(self) -> None:
        with self.changed:
            self.is_interrupted = True
            self.changed.notify_all()

    def next_batch(self) -> Any:
        with self.changed:
            self.is_waiting = True
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.batches or self.is_interrupted, timeout=30)
            self.is_waiting = False
            batch = None if self.is_interrupted else self.batches.pop(0)
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

    def wait_until_started(self, epoch: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls[-1:] == [epoch], timeout=30)


class Echo:
    """Gives what it gets; a batch called "slow" takes until the test says."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def start_epoch(self) -> None:
        pass

    def assemble(self, native: Any) -> Any:
        if native == "slow":
            self.begun.set()
            assert self.may_end.wait(30)
        return native


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def assembler() -> Echo:
    return Echo()


@pytest.fixture
def pipeline(engine: FakeEngine, assembler: Echo) -> Iterator[Pipeline]:
    made = Pipeline(cast(Any, engine), cast(Any, assembler))
    yield made
    engine.give(None)
    made.close()


def taken(pipeline: Pipeline) -> Any:
    ready = pipeline.peek()
    if ready is not None:
        pipeline.take(ready)
    return ready


def start_twice_during_a_batch(engine: FakeEngine, assembler: Echo, pipeline: Pipeline) -> None:
    """The second start is wanted while a batch of the first is still being made."""
    pipeline.start(0, "state-0")
    engine.give("slow")
    assert assembler.begun.wait(30)
    pipeline.start(1, "state-1")


def test_a_start_enters_its_epoch_where_the_state_stands(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(3, "state-3")
    engine.give("a", "b", None)
    assert [taken(pipeline) for _ in range(4)] == ["a", "b", None, None]
    assert engine.calls == ["state-3", 3]


def test_a_batch_stays_until_it_is_taken_and_is_taken_once(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.give("a", "b", None)
    found: list[Any] = [pipeline.peek() for _ in range(3)]
    assert found == ["a", "a", "a"]
    for _ in range(2):
        pipeline.take(found[0])
    assert [taken(pipeline) for _ in range(2)] == ["b", None]


def test_what_was_made_for_an_older_start_is_thrown_away(
    engine: FakeEngine, assembler: Echo, pipeline: Pipeline
) -> None:
    start_twice_during_a_batch(engine, assembler, pipeline)
    pipeline.start(5, "state-5")
    assembler.may_end.set()
    engine.give("fresh")
    assert taken(pipeline) == "fresh"
    # The start in between was never wanted: it must not use up the state of the last one.
    assert engine.calls == ["state-0", 0, "state-5", 5]


def test_a_new_start_waits_for_no_batch_of_the_old_one(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "state-0")
    engine.wait_until_asked()
    pipeline.start(1, "state-1")
    engine.wait_until_started(1)
    # That the old wait gave nothing is not the end of the new epoch.
    engine.give("fresh", None)
    assert [taken(pipeline) for _ in range(2)] == ["fresh", None]


def test_a_start_that_is_no_longer_wanted_is_not_entered(
    engine: FakeEngine, assembler: Echo, pipeline: Pipeline
) -> None:
    start_twice_during_a_batch(engine, assembler, pipeline)
    assert cast(Any, pipeline.stand("state-7")) == "stands at state-7"
    assembler.may_end.set()
    with engine.changed:
        assert not engine.changed.wait_for(lambda: 1 in engine.calls, timeout=0.3)
    assert pipeline.peek() is None
    pipeline.start(2, "state-2")
    engine.give("fresh")
    assert taken(pipeline) == "fresh"
    assert engine.calls == ["state-0", 0, "state-7", "state-2", 2]


def test_a_refused_state_drops_nothing(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "state-0")
    engine.give("a", "b", None)
    assert taken(pipeline) == "a"
    with pytest.raises(StateError):
        pipeline.stand("refused")
    assert [taken(pipeline) for _ in range(2)] == ["b", None]


def test_no_more_is_made_than_one_ahead(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.give(*range(DEPTH + 3))
    assert taken(pipeline) == 0
    with engine.changed:
        assert len(engine.batches) >= 2


def test_a_store_error_stands_for_its_batch_and_others_stay(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    gone = SampleMissing("gone")
    gone.seq = 4
    engine.give(gone, "next", RuntimeError("broken"))
    assert taken(pipeline) == Lost(gone, 4)
    assert taken(pipeline) == "next"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            taken(pipeline)
    pipeline.start(1, "s")
    engine.give("again")
    assert taken(pipeline) == "again"


def test_batches_that_nobody_takes_are_given_up_and_come_again(
    engine: FakeEngine, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock._pipeline.IDLE_SECONDS", 0.1)
    pipeline.start(3, "state-3")
    engine.give("a", "b", "c")
    assert taken(pipeline) == "a"
    deadline = time.monotonic() + 30
    while not pipeline._is_parked:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.give("b", None)
    assert [taken(pipeline) for _ in range(2)] == ["b", None]
    assert engine.calls == ["state-3", 3, "acknowledged", 3]
    # The end is no memory to be given back.
    time.sleep(0.3)
    assert pipeline.peek() is None
    assert engine.calls == ["state-3", 3, "acknowledged", 3]


def test_closing_wakes_all_who_wait(engine: FakeEngine, pipeline: Pipeline) -> None:
    pipeline.start(0, "s")
    engine.wait_until_asked()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            pipeline.peek()
        except EngineClosed as error:
            caught.append(error)

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    closer = threading.Thread(target=pipeline.close)
    for thread in (*waiters, closer):
        thread.start()
    for waiter in waiters:
        waiter.join(30)
    engine.give(None)
    closer.join(30)
    assert len(caught) == 3
    assert not closer.is_alive()
