"""Closing gives everything back, whatever fails or comes in between, and waits for no other loader."""

import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from unit.sdk.conftest import FakeApi, Training
from unit.sdk.loading import loader_of

from penstock import _errors as errors
from penstock import _native, _resources
from penstock._engine import StoreLease, _pool
from penstock._resources import close_together


@pytest.fixture
def silent_training() -> Iterator[Training]:
    """In a store that takes connections and never answers, for which its loader waits four seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = {"kind": "cql", "contact_points": [address], "local_dc": "dc", "keyspace": "k"}
        yield Training(FakeApi(), config, count=8, rows_a_part=8)


def open_in_vain(training: Training) -> None:
    with pytest.raises(errors.StoreUnavailable):
        loader_of(training)


def assembly_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "penstock-assembly"}


def with_broken_counters(training: Any) -> None:
    """Every look at the counters of its store panics in the core."""
    config = training.store_config | {"faults": {"has_broken_counters": True}}
    store = {"reach": "direct", "config": config, "host": None, "reason": None}
    training.api.answer("POST", "/loaders/resolve", training.plan(store=store))


class SlowOpening:
    """Stands in for `Store.open`: the first call waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.begun, self.may_go = threading.Event(), threading.Event()
        self._open = _native.Store.open
        self.error: Exception | None = None
        monkeypatch.setattr(_native, "Store", self)

    def open(self, config_json: str) -> _native.Store:
        self.calls += 1
        if self.calls == 1:
            self.begun.set()
            assert self.may_go.wait(10)
            if self.error is not None:
                raise self.error
        return self._open(config_json)


class StoreOpener:
    """Takes a store in a thread of its own."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.error: Exception | None = None
        self._config = config
        self._lease: StoreLease | None = None
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def result(self) -> StoreLease | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self._lease

    def close(self) -> None:
        if (lease := self.result()) is not None:
            lease.release(1.0)

    def _take(self) -> None:
        try:
            self._lease = StoreLease(self._config)
        except errors.StoreUnavailable as error:
            self.error = error


def test_closing_does_not_wait_for_a_loader_that_is_being_opened(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(training)
    next(iter(loader))
    opening = SlowOpening(monkeypatch)
    other = StoreOpener({"kind": "memory", "name": uuid.uuid4().hex})
    assert opening.begun.wait(10)
    loader.close()
    assert other.thread.is_alive()
    opening.may_go.set()
    other.close()


def test_a_signal_handler_closes_a_loader_while_another_is_being_opened(
    training: Any, silent_training: Training
) -> None:
    loader = loader_of(training)
    is_closed = []

    def close(number: int, frame: FrameType | None) -> None:
        loader.close()
        is_closed.append(not loader._finalizer.alive)

    usual = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        open_in_vain(silent_training)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert is_closed == [True]


@pytest.mark.parametrize("error", [None, errors.StoreUnavailable("away")])
def test_one_configuration_is_opened_once_by_whoever_comes_first(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = SlowOpening(monkeypatch)
    opening.error = error
    config = {"kind": "memory", "name": uuid.uuid4().hex}
    takers = [StoreOpener(config)]
    assert opening.begun.wait(10)
    takers += [StoreOpener(config) for _ in range(2)]
    opening.may_go.set()
    leases = [lease for taker in takers if (lease := taker.result()) is not None]
    assert len({id(lease.store) for lease in leases}) == 1
    # One that waited tries it again when the first could not.
    assert [taker.error for taker in takers] == [error, None, None]
    assert opening.calls == (1 if error is None else 2)
    for taker in takers:
        taker.close()
    assert json.dumps(config, sort_keys=True) not in _pool._stores
    assert not _pool._opening


def test_a_signal_handler_may_open_what_its_thread_is_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"kind": "memory", "name": uuid.uuid4().hex}
    usual = _native.Store.open
    inner: list[StoreLease] = []

    class Interrupted:
        @staticmethod
        def open(config_json: str) -> _native.Store:
            if not inner:
                monkeypatch.undo()
                inner.append(StoreLease(config))
            return usual(config_json)

    monkeypatch.setattr(_native, "Store", Interrupted)
    outer = StoreLease(config)
    assert outer.store is inner[0].store
    inner[0].release(1.0)
    # It is still open.
    outer.store.ping()
    outer.release(1.0)
    assert not _pool._opening


def test_a_core_that_panics_at_its_counters_keeps_nothing_open(training: Any) -> None:
    leased, threads = set(_pool._stores), assembly_threads()
    with_broken_counters(training)
    loader = loader_of(training)
    next(iter(loader))
    loader.close()
    assert set(_pool._stores) == leased
    assert assembly_threads() == threads


def test_a_loader_that_cannot_be_told_to_end_keeps_no_other_open(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased, threads = set(_pool._stores), assembly_threads()
    loaders = [loader_of(training) for _ in range(3)]
    for loader in loaders:
        next(iter(loader))

    def panic() -> None:
        raise errors.CorePanicked("a bug")

    engine = loaders[1]._resources.engine
    assert engine is not None
    monkeypatch.setattr(engine, "failures", panic)
    with pytest.raises(errors.CorePanicked):
        close_together([loader._resources for loader in loaders])
    assert set(_pool._stores) == leased
    assert assembly_threads() == threads


def test_ctrl_c_while_closing_waits_still_gives_the_store_back(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resources, "CLOSE_SECONDS", 0.3)
    leased = set(_pool._stores)
    loader = loader_of(training)
    next(iter(loader))
    pipeline = loader._resources.pipeline
    assert pipeline is not None

    def interrupted(deadline: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    monkeypatch.setattr(pipeline, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.close()
    assert set(_pool._stores) == leased
