"""A loader that nobody asks for a while gives its memory back, and nobody notices when it goes on."""

import gc
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from unit.sdk.loading import indices, loader_of, valid_indices
from unit.sdk.test_loader_signals import Interrupted, interrupt

from penstock import Batch, Loader, _engine, _pipeline


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = _engine._native_options
    # A minute otherwise, and not for users to set.
    monkeypatch.setattr(_engine, "_native_options", lambda options: usual(options) | {"idle_seconds": 0.05})
    monkeypatch.setattr(_pipeline, "IDLE_SECONDS", 0.05)


def wait_until_idle(loader: Loader) -> None:
    pipeline = loader._resources.pipeline
    assert pipeline is not None
    deadline = time.monotonic() + 20
    while not pipeline._is_parked:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def with_pauses(loader: Loader, steps: int) -> Iterator[Batch]:
    """An epoch with a pause before some of its steps; before the last two nothing is left to be given up."""
    running = iter(loader)
    for step in range(steps):
        yield next(running)
        if step in (0, 1, 4):
            wait_until_idle(loader)
    assert list(running) == []


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("last_batch", ["partial", "pad", "drop"])
def test_every_sample_comes_once(training: Any, in_order: bool, last_batch: str) -> None:
    seen: Counter[int] = Counter()
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "last_batch": last_batch, "in_order": in_order, "shuffle": True}
        with loader_of(training, batch_size=6, **options) as loader:
            steps = len(loader)
            batches = list(with_pauses(loader, steps))
            assert (len(batches), loader.epoch) == (steps, 1)
            seen.update(valid_indices(training, batches))
            assert len(list(loader)) == steps
    assert set(seen.values()) == {1}
    assert len(seen) == (96 if last_batch == "drop" else 101)


def test_the_order_stays(training: Any) -> None:
    with loader_of(training, in_order=True) as loader:
        assert valid_indices(training, with_pauses(loader, 13)) == list(range(101))


def test_no_batch_is_held(training: Any) -> None:
    with loader_of(training, decode=None) as loader:
        running = iter(loader)
        seen = indices(training, next(running))
        wait_until_idle(loader)
        gc.collect()
        deadline = time.monotonic() + 20
        while (stats := loader.stats()["engine"])["arena_lent_bytes"] or stats["held_bytes"]:
            assert time.monotonic() < deadline, stats
            time.sleep(0.01)
        state = loader.state_dict()
        seen += valid_indices(training, running)
        assert sorted(seen) == list(range(101))
        # The pause is not to be seen in what was saved during it.
        loader.load_state_dict(state)
        assert len(list(loader)) == 12


def test_a_batch_that_an_interruption_left_behind_comes_once(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(training) as loader:
        running = iter(loader)
        seen = indices(training, next(running))
        with monkeypatch.context() as patched:
            patched.setattr(loader._engine_in_use(), "ack", interrupt)
            with pytest.raises(Interrupted):
                next(running)
        wait_until_idle(loader)
        seen += valid_indices(training, running)
        assert sorted(seen) == list(range(101))


def test_failures_are_told_once_and_limited_as_without_a_pause(training: Any) -> None:
    bad = range(8, 16)
    for index in bad:
        training.payloads[index]["image"] = b"no picture"
    training.parts = [training._part(range(101))]
    training._offer()
    training.write()
    with loader_of(training, on_error="skip", in_order=True) as loader:
        # Given up while the eight lie ready, which are as many as may fail.
        found = valid_indices(training, with_pauses(loader, 13))
        assert found == [index for index in range(101) if index not in bad]
        assert [training.index_of[each.sample_id] for each in loader.failures()] == list(bad)
