"""What cannot be is refused when the loader is made, in words that say what to do; what is small simply works."""

import uuid
from collections import Counter
from typing import Any

import httpx
import pytest
from unit.sdk.conftest import Training
from unit.sdk.loading import assert_paired, loader_of, valid_indices

from penstock import _errors as errors
from penstock import _native

PART = f"/datasets/demo/members/{uuid.UUID(int=0)}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0: expected at least 1"),
        ({"rank": 2, "world_size": 2}, r"rank 2 of 2 \(from the arguments\) cannot be: ranks go from 0"),
        ({"rank": -1, "world_size": 2}, "rank -1 of 2"),
        ({"rank": 0, "world_size": 0}, "rank 0 of 0"),
        ({"rank": 0}, "rank and world_size belong together"),
    ],
)
def test_impossible_arguments(training: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        loader_of(training, **options)


def test_empty_subset(training: Any) -> None:
    subset = training.plan()["subset"] | {"count": 0}
    training.api.answer("POST", "/loaders/resolve", training.plan(subset=subset, parts=[]))
    with pytest.raises(errors.ConfigError, match="subset 'train' of 'demo' has no samples: nothing to load"):
        loader_of(training)


def test_sample_larger_than_the_read_ahead_is_named_with_its_size(training: Any) -> None:
    sizes = [sum(map(len, payload.values())) for payload in training.payloads]
    largest = sizes.index(max(sizes))
    for prefetch_bytes in (1, max(sizes) - 1):
        with pytest.raises(
            errors.ConfigError,
            match=rf"sample {training.sample_ids[largest]} has {max(sizes)} bytes, more than prefetch_bytes "
            rf"\({prefetch_bytes}\)",
        ):
            loader_of(training, prefetch_bytes=prefetch_bytes)
    with loader_of(training, prefetch_bytes=max(sizes)) as loader:
        assert Counter(valid_indices(training, loader)) == Counter(range(101))


def test_default_read_ahead_takes_any_sample(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock._engine.available_bytes", lambda: 0)
    with loader_of(training) as loader:
        assert Counter(valid_indices(training, loader)) == Counter(range(101))


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_damaged_members(training: Any, damage: str) -> None:
    whole = training.parts[0]
    middle = whole.find(training.sample_ids[30].bytes)
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    data = {"cut": whole[: len(whole) // 2], "empty": b"", "flipped": flipped}[damage]
    training.api.serve("GET", PART, lambda request: httpx.Response(200, content=data))
    with pytest.raises(errors.TransportError, match=f"members part {uuid.UUID(int=0)} came damaged.*try again"):
        loader_of(training)


def test_members_of_another_digest(training: Any) -> None:
    parts = training.plan()["parts"]
    parts[0] = parts[0] | {"digest": parts[1]["digest"]}
    training.api.answer("POST", "/loaders/resolve", training.plan(parts=parts))
    with pytest.raises(errors.TransportError, match=f"60 rows of digest b3:.*expected 60 of {parts[1]['digest']}"):
        loader_of(training)


def test_fewer_members_than_the_split_says(training: Any) -> None:
    training.api.answer("POST", "/loaders/resolve", training.plan(parts=training.plan()["parts"][:1]))
    with pytest.raises(errors.TransportError, match="60 members, the split says 101"):
        loader_of(training)


def test_refused_loader_leaves_no_store_open(training: Any) -> None:
    from penstock._engine import _pool

    before = dict(_pool._stores)
    with pytest.raises(errors.ConfigError):
        loader_of(training, prefetch_bytes=1)
    assert _pool._stores == before


@pytest.fixture
def few(api: Any, request: pytest.FixtureRequest) -> Any:
    made = Training(api, {"kind": "memory", "name": uuid.uuid4().hex}, count=request.param, rows_a_part=2)
    store = _native.Store.open(__import__("json").dumps(made.store_config))
    made.write_to(store)
    yield made
    store.close()


@pytest.mark.parametrize("few", [1, 3], indirect=True)
@pytest.mark.parametrize("options", [{}, {"last_batch": "pad"}, {"batch_size": 100}, {"batch_size": 1}])
def test_a_few_samples_simply_work(few: Any, options: dict[str, Any]) -> None:
    with loader_of(few, shuffle=True, **options) as loader:
        for _ in range(3):
            batches = list(loader)
            assert len(batches) == len(loader)
            for batch in batches:
                assert_paired(few, batch)
            assert sorted(valid_indices(few, batches)) == list(range(few.count))


@pytest.mark.parametrize("few", [1, 3], indirect=True)
@pytest.mark.parametrize("last_batch", ["pad", "partial"])
def test_more_ranks_than_samples_simply_work(few: Any, last_batch: str) -> None:
    seen: list[int] = []
    for rank in range(5):
        with loader_of(few, rank=rank, world_size=5, last_batch=last_batch) as loader:
            batches = list(loader)
            assert len(batches) == len(loader) == 1
            seen += valid_indices(few, batches)
    assert sorted(seen) == list(range(few.count))


@pytest.mark.parametrize("few", [3], indirect=True)
def test_dropping_a_subset_smaller_than_a_batch_leaves_no_steps(few: Any) -> None:
    with loader_of(few, drop_last=True) as loader:
        assert len(loader) == 0
        assert list(loader) == []
        assert loader.epoch == 1
