"""Things that go wrong between the loader and its surroundings, and what must not be lost over them."""

from typing import Any

import numpy as np
import pytest
import torch
from unit.sdk.loading import loader_of, valid_indices

from penstock import Batch, StateError


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
