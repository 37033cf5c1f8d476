"""The default read-ahead is divided by the loaders that live, all the time."""

import gc
import json
import uuid
from typing import Any

import pytest
from unit.sdk.conftest import Training
from unit.sdk.loading import loader_of
from unit.sdk.test_fork import in_fork

from penstock import _engine, _native

GIB = 1 << 30


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(_engine, "available_bytes", lambda: 64 * GIB)


def shares_of(*loaders: Any) -> list[int]:
    return [loader.stats()["prefetch_bytes"] for loader in loaders]


def test_three_loaders_share_one_budget_and_a_closed_one_gives_its_share_back(training: Any) -> None:
    first = loader_of(training)
    assert shares_of(first) == [GIB]
    second, third = loader_of(training), loader_of(training)
    assert shares_of(first, second, third) == [GIB // 3] * 3
    second.close()
    assert shares_of(first, third) == [GIB // 2] * 2
    del third
    gc.collect()
    assert shares_of(first) == [GIB]
    first.close()


def test_a_chosen_budget_stays_and_its_loader_counts(training: Any) -> None:
    with loader_of(training, prefetch_bytes=1 << 20) as chosen, loader_of(training) as other:
        assert shares_of(chosen, other) == [1 << 20, GIB // 2]


def test_loaders_of_the_parent_do_not_count_in_a_child(training: Any) -> None:
    def check() -> None:
        # The parent's store is not this process's: another one, with the same samples.
        own = Training(
            training.api,
            {"kind": "memory", "name": uuid.uuid4().hex},
            count=training.count,
            rows_a_part=60,
            dataset_id=training.dataset_id,
        )
        store = _native.Store.open(json.dumps(own.store_config))
        own.write_to(store)
        with loader_of(own) as loader:
            assert shares_of(loader) == [GIB]

    with loader_of(training), loader_of(training):
        in_fork(check)


def test_a_store_on_this_machine_takes_less_unless_a_budget_is_chosen(lmdb_training: Any) -> None:
    lmdb_training.api.answer("POST", "/loaders/resolve", lmdb_training.plan())
    with loader_of(lmdb_training) as loader:
        assert shares_of(loader) == [32 << 20]
    with loader_of(lmdb_training, prefetch_bytes=64 << 20) as loader:
        assert shares_of(loader) == [64 << 20]
