"""Things that go wrong between the loader and its surroundings, and what must not be lost over them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from unit.sdk.loading import loader_of, valid_indices

from penstock import Batch, ConfigError, StateError, merge_states
from penstock._assembly import Assembled
from penstock._pipeline import Lost, Pipeline


def test_a_batch_that_could_not_be_pinned_comes_again(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([True, False, True, True])

    def pin(batch: Batch, device: Any = None) -> Batch:
        if next(failures, False):
            raise RuntimeError("no page-locked memory left")
        return batch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Batch, "pin_memory", pin)
    with loader_of(training, in_order=True, output="torch", pin_memory=True) as loader:
        running = iter(loader)
        batches, failed = [], 0
        while loader.epoch == 0:
            try:
                batches.append(next(running))
            except RuntimeError:
                failed += 1
        assert (failed, len(batches)) == (3, 13)
        assert valid_indices(training, batches) == list(range(101))


def test_a_loaded_state_that_does_not_fit_new_ranks_is_refused_every_time(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with loader_of(training) as loader:
        next(iter(loader))
        with pytest.warns(UserWarning, match="alone"):
            state = loader.state_dict()
        loader.load_state_dict(state)
        monkeypatch.setenv("RANK", "1")
        for _ in range(2):
            with pytest.raises(StateError, match="rank 0 in a world of 2 alone"):
                len(loader)
        monkeypatch.setenv("RANK", "0")
        assert loader.stats()["step"] == 1
        assert len(loader) == 7


@pytest.mark.filterwarnings("ignore:this is the state of rank:UserWarning")
def test_a_state_that_fits_new_ranks_is_loaded_in_place_of_one_that_does_not(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, seen = [], []
    for rank in range(2):
        with loader_of(training, rank=rank, world_size=2) as loader:
            seen += valid_indices(training, [next(iter(loader))])
            states.append(loader.state_dict())
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with loader_of(training) as loader:
        loader.load_state_dict(states[0])
        monkeypatch.setenv("WORLD_SIZE", "3")
        with pytest.raises(StateError, match="rank 1 in a world of 2 alone"):
            loader.load_state_dict(states[1])
        with pytest.raises(StateError, match="rank 0 in a world of 2 alone"):
            len(loader)
        loader.load_state_dict(merge_states(states))
        seen += valid_indices(training, loader)
    for rank in (1, 2):
        with loader_of(training, rank=rank, world_size=3) as loader:
            loader.load_state_dict(merge_states(states))
            seen += valid_indices(training, loader)
    assert sorted(seen) == list(range(101))


@pytest.mark.filterwarnings("ignore:this is the state of rank:UserWarning")
def test_a_state_that_new_ranks_refuse_leaves_the_loaded_one(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with loader_of(training) as loader:
        seen = valid_indices(training, [next(iter(loader))])
        state = loader.state_dict()
        loader.load_state_dict(state)
        monkeypatch.setenv("WORLD_SIZE", "3")
        with pytest.raises(StateError, match="rank 0 in a world of 2 alone"):
            loader.load_state_dict(state)
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert loader.state_dict() == state
        assert not set(seen) & set(valid_indices(training, loader))


def test_an_interrupted_change_of_ranks_leaves_the_loader_as_it_was(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader_of(training) as loader:
        build = loader._resources.replace_engine

        def interrupted(ranks: Any) -> Any:
            build(ranks)
            if ranks.world_size == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(loader._resources, "replace_engine", interrupted)
            patched.setenv("RANK", "0")
            patched.setenv("WORLD_SIZE", "2")
            with pytest.raises(KeyboardInterrupt):
                len(loader)
        assert len(list(loader)) == 13


def test_stats_of_a_loader_that_closes_meanwhile(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(training)
    next(iter(loader))
    engine = loader._engine_in_use()
    usual = engine.stats

    def close_first() -> Any:
        loader.close()
        return usual()

    monkeypatch.setattr(engine, "stats", close_first)
    stats = loader.stats()
    assert (stats["batches"], stats["prefetch_bytes"], stats["engine"]) == (1, 0, {})


def test_an_empty_last_batch_keeps_its_types(training: Any) -> None:
    # 101 samples on 4 ranks: the first has 26, the others 25.
    options: dict[str, Any] = {"rank": 3, "world_size": 4, "last_batch": "partial", "in_order": True}
    with loader_of(training, batch_size=25, **options) as loader:
        assert len(loader) == 2
        full, empty = list(loader)
        assert len(full["valid"]) == 25
        assert len(empty["valid"]) == 0
        for name, value in full.items():
            assert type(empty[name]) is type(value)
            if isinstance(value, np.ndarray):
                assert empty[name].dtype == value.dtype
                assert empty[name].shape == (0, *value.shape[1:])
            else:
                assert empty[name] == []


def test_the_next_epoch_is_taken_over_as_it_was_read_ahead(training: Any) -> None:
    with loader_of(training, shuffle=True) as loader:
        for _ in range(3):
            assert len(list(loader)) == 13
        assert loader.stats()["engine"]["discarded"] == 0


def test_two_threads_do_not_get_the_same_batch(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()
    peek = Pipeline.peek

    def slow_peek(pipeline: Pipeline) -> Assembled | Lost | None:
        is_inside.set()
        assert may_go_on.wait(30)
        return peek(pipeline)

    with loader_of(training) as loader, ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr(Pipeline, "peek", slow_peek)
        running = iter(loader)
        taken = thread.submit(next, running)
        assert is_inside.wait(30)
        with pytest.raises(ConfigError, match="two threads"):
            next(running)
        may_go_on.set()
        batches = [taken.result(), *running]
        assert sorted(valid_indices(training, batches)) == list(range(101))
