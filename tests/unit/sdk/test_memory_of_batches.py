"""Batches of views: the user may keep them, write into them, or stop asking; nobody else notices."""

import gc
import json
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from unit.sdk.loading import indices, loader_of, valid_indices

from penstock import _engine, _native
from penstock import _errors as errors

ALL = Counter(range(101))


def assert_own_bytes(training: Any, batch: Any) -> None:
    for row, image, mask in zip(indices(training, batch), batch["image"], batch["mask"], strict=True):
        assert bytes(np.asarray(image)) == training.payloads[row]["image"]
        assert bytes(np.asarray(mask)) == training.payloads[row]["mask"]


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_list_of_an_epoch_larger_than_the_read_ahead_holds_every_sample(training: Any, output: str) -> None:
    sizes = [sum(map(len, payload.values())) for payload in training.payloads]
    with loader_of(training, decode=None, output=output, prefetch_bytes=4 * max(sizes)) as loader:
        assert sum(sizes) > 10 * loader.stats()["prefetch_bytes"]
        batches = [*loader, *loader]
        assert Counter(valid_indices(training, batches)) == ALL + ALL
        for batch in batches:
            assert_own_bytes(training, batch)


def test_batches_kept_over_epochs_can_be_written_and_change_no_other(training: Any) -> None:
    with loader_of(training, decode=None, shuffle=True) as loader:
        kept = list(loader)
        for value in (1, 2):
            for batch in loader:
                for image in (image for old in kept for image in old["image"]):
                    image[:] = value
                assert_own_bytes(training, batch)
    gc.collect()
    for batch in kept:
        for image in batch["image"]:
            image[:] = 9
            assert (image == 9).all()


def test_memory_of_batches_returns_with_the_last_sample_of_each(training: Any) -> None:
    with loader_of(training, decode=None, in_order=True) as loader:
        running = iter(loader)
        samples = [next(running)["image"][3] for _ in range(6)]
        expected = [training.payloads[8 * number + 3]["image"] for number in range(6)]
        settled = lent_bytes(loader)
        assert [bytes(sample) for sample in samples] == expected
        del samples
        gc.collect()
        assert lent_bytes(loader) < settled


def lent_bytes(loader: Any) -> int:
    """Of blocks that batches lie in, when nothing changes any more."""
    lent, deadline = -1, time.monotonic() + 20
    while True:
        stats = loader.stats()["engine"]
        if stats["arena_lent_bytes"] == lent and stats["inflight_samples"] == 0:
            return lent
        assert time.monotonic() < deadline
        lent = stats["arena_lent_bytes"]
        time.sleep(0.1)


def test_loader_that_nobody_asks_gives_its_memory_back_and_then_goes_on(
    training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = _engine._native_options
    # A minute otherwise, and not for users to set.
    monkeypatch.setattr(_engine, "_native_options", lambda options: usual(options) | {"idle_seconds": 0.3})
    with loader_of(training, decode=None, batch_size=4) as loader:
        running = iter(loader)
        seen = [*indices(training, next(running))]
        deadline = time.monotonic() + 20
        while (stats := loader.stats()["engine"])["parks"] == 0 or stats["held_bytes"] or stats["arena_idle_bytes"]:
            assert time.monotonic() < deadline, stats
            time.sleep(0.01)
        assert stats["ready_batches"] == stats["arrived_samples"] == stats["inflight_samples"] == 0
        for batch in running:
            seen += indices(training, batch)
    assert Counter(seen) == ALL


def test_bug_in_the_core_reaches_the_user_as_an_error_and_the_process_goes_on(training: Any) -> None:
    with _native.Store.open(json.dumps(training.store_config)):
        broken = training.store_config | {"faults": {"panic_share": 1.0}}
        reach = {"reach": "direct", "config": broken, "host": None, "reason": None}
        training.api.answer("POST", "/loaders/resolve", training.plan(store=reach))
        with loader_of(training) as loader:
            for _ in range(2):
                with pytest.raises(errors.CorePanicked, match="please report it"):
                    next(iter(loader))
        training.api.answer("POST", "/loaders/resolve", training.plan())
        with loader_of(training) as loader:
            assert Counter(valid_indices(training, loader)) == ALL
