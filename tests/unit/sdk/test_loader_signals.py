"""A signal handler may raise wherever Python lets it run: no batch is lost over that, and none counts twice."""

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from unit.sdk.loading import indices, loader_of, valid_indices

import penstock
from penstock import Batch
from penstock import _errors as errors
from penstock._assembly import Assembled
from penstock._pipeline import Lost, Pipeline

ALL = Counter(range(101))
PACKAGE = str(Path(penstock.__file__).parent)
# What an interrupted write to the log has done cannot be known.
UNKNOWABLE = str(Path(PACKAGE) / "_delivered.py")


class Interrupted(BaseException):
    """As Ctrl-C is."""


class Raiser:
    """Raises at the first moment that is not known yet, of those at which a signal handler may run.

    Such a moment is when a function is entered, or has called into C.
    """

    def __init__(self, known: set[tuple[str, str, int]]) -> None:
        self._known = known
        self._met: Counter[tuple[str, str]] = Counter()
        self.where: tuple[str, str] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "c_return") or not file.startswith(PACKAGE) or file == UNKNOWABLE:
            return
        where = (frame.f_code.co_name, event)
        self._met[where] += 1
        # Not by its number in the call: one that finds its batch ready has fewer moments than one that waits for it.
        moment = (*where, self._met[where])
        if moment not in self._known:
            self._known.add(moment)
            self.where = where
            raise Interrupted

    @contextmanager
    def armed(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


def interrupt(*_arguments: Any) -> None:
    raise Interrupted


def next_with_interruption(running: Iterator[Batch], raiser: Raiser) -> Batch | None:
    """The next batch, or None when it was interrupted."""
    try:
        with raiser.armed():
            return next(running)
    except Interrupted:
        return None


def moments() -> Iterator[Raiser]:
    """Every moment of a call, until one comes through that has had an interruption at each of its own."""
    known: set[tuple[str, str, int]] = set()
    for _ in range(1000):
        raiser = Raiser(known)
        yield raiser
        if raiser.where is None:
            return
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_an_interrupted_batch_comes_at_the_next_call_and_counts_once(training: Any, tmp_path: Path, step: int) -> None:
    # Moments of an interruption after which the state already says that the user has the batch.
    too_late: set[tuple[str, str]] = set()
    log = tmp_path / "seen.jsonl"
    with loader_of(training, batch_size=40, delivered_log=log) as loader:
        for epoch, raiser in enumerate(moments()):
            running = iter(loader)
            batches = [next(running) for _ in range(step)]
            before = loader.state_dict()
            batch = next_with_interruption(running, raiser)
            # In the first step that is the state in which the epoch before has ended.
            if batch is None and loader.state_dict() != before:
                assert raiser.where is not None
                too_late.add(raiser.where)
            batches += running if batch is None else [batch, *running]
            assert Counter(valid_indices(training, batches)) == ALL, raiser.where
            stats = loader.stats()
            place = (stats["batches"], stats["samples"], stats["epoch"], stats["step"])
            assert place == (3 * epoch + 3, 101 * epoch + 101, epoch + 1, 0), raiser.where
        assert stats["errors"] == 0
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["epoch"], each["step"]) for each in logged] == [(e, s) for e in range(epoch + 1) for s in range(3)]
    # At the end of an epoch the loader also goes on to the next one.
    assert step == 2 or too_late == {("ack", "c_return")}


def test_an_interrupted_error_comes_at_the_next_call_and_counts_once(training: Any) -> None:
    training.payloads[50]["image"] = b"no picture"
    training.parts = [training._part(range(101))]
    training._offer()
    training.write()
    places: set[tuple[str, str] | None] = set()
    with loader_of(training, batch_size=40, in_order=True) as loader:
        for epoch, raiser in enumerate(moments()):
            running = iter(loader)
            batches = [next(running)]
            with pytest.raises(errors.SampleCorrupt):
                # An interrupted call is made again.
                batches.append(next_with_interruption(running, raiser) or next(running))
            batches += running
            assert valid_indices(training, batches) == [*range(40), *range(80, 101)], raiser.where
            stats = loader.stats()
            assert (stats["errors"], stats["batches"], stats["epoch"]) == (epoch + 1, 2 * epoch + 2, epoch + 1)
            lost = [training.index_of[each.sample_id] for each in loader.failures() if each.epoch == epoch]
            assert sorted(lost) == list(range(40, 80)), raiser.where
            places.add(raiser.where)
    assert ("ack", "c_return") in places


def test_every_moment_is_met_however_often_a_call_waits(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    peek = Pipeline.peek

    def peek_late(pipeline: Pipeline) -> Assembled | Lost | None:
        for _ in range(waits):
            pipeline._arrived.ring()
            pipeline._arrived.wait()
        return peek(pipeline)

    monkeypatch.setattr(Pipeline, "peek", peek_late)
    places: set[tuple[str, str] | None] = set()
    with loader_of(training, batch_size=40, decode=None) as loader:
        for epoch, raiser in enumerate(moments()):
            # More interruptions than a call has moments that finds its batch ready, and none of them behind the wait.
            waits = 50 if epoch < 150 else 0
            running = iter(loader)
            batches = [next(running)]
            batch = next_with_interruption(running, raiser)
            batches += running if batch is None else [batch, *running]
            assert Counter(valid_indices(training, batches)) == ALL, raiser.where
            places.add(raiser.where)
    assert ("ack", "c_return") in places


def test_the_end_of_an_epoch_is_found_after_an_interruption(training: Any) -> None:
    with loader_of(training, drop_last=True) as loader:
        running = iter(loader)
        for _ in range(11):
            next(running)
        state = loader.state_dict()
    # The rest of the epoch fills no batch: its end is all that comes.
    with loader_of(training, drop_last=True, batch_size=50) as loader:
        for raiser in moments():
            loader.load_state_dict(state)
            running = iter(loader)
            with suppress(StopIteration):
                assert next_with_interruption(running, raiser) is None
            assert list(running) == [], raiser.where
            assert loader.epoch == 1, raiser.where
        assert len(list(loader)) == 2


def test_an_interrupted_batch_is_gone_with_its_iteration(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for leave in ("iterate again", "set_epoch", "load_state_dict"):
        with loader_of(training, shuffle=True, in_order=True) as loader:
            running = iter(loader)
            next(running)
            state = loader.state_dict()
            with monkeypatch.context() as patched:
                patched.setattr(loader._engine_in_use(), "ack", interrupt)
                with pytest.raises(Interrupted):
                    next(running)
            assert loader.state_dict() == state
            if leave == "set_epoch":
                loader.set_epoch(1)
            elif leave == "load_state_dict":
                loader.load_state_dict(state)
            rest = list(loader)
            assert list(running) == []
            assert loader.epoch == (1 if leave == "load_state_dict" else 2)
            assert len(rest) == (12 if leave == "load_state_dict" else 13)


def test_a_batch_whose_pinning_was_interrupted_comes_again(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions = iter([True, False, True])

    def pin(batch: Batch, device: Any = None) -> Batch:
        if next(interruptions, False):
            raise Interrupted
        return batch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Batch, "pin_memory", pin)
    with loader_of(training, in_order=True, output="torch", pin_memory=True) as loader:
        running = iter(loader)
        batches = []
        while loader.epoch == 0:
            try:
                batches.append(next(running))
            except Interrupted:
                continue
        assert valid_indices(training, batches) == list(range(101))
        assert loader.stats()["errors"] == 0


def test_a_storm_of_signals_neither_loses_nor_repeats_a_sample(training: Any) -> None:
    is_taking = False

    def handler(number: int, frame: FrameType | None) -> None:
        # Not where the test itself has the batch in its hand.
        while is_taking and frame is not None:
            if frame.f_code.co_name == "_next":
                raise Interrupted
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 4e-4, 4e-4)
    try:
        with loader_of(training, batch_size=1, decode=None) as loader:
            running = iter(loader)
            seen: Counter[int] = Counter()
            interruptions = 0
            while loader.epoch == 0:
                is_taking = True
                try:
                    batch = next(running)
                except Interrupted:
                    interruptions += 1
                    continue
                finally:
                    is_taking = False
                seen.update(indices(training, batch))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == ALL
    assert interruptions > 0
