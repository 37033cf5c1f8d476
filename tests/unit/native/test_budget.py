"""The bytes that an engine may hold ahead: what was chosen is kept, what was not can change."""

import json
import time
from typing import Any

import numpy as np
import pytest
from property.native.engine_world import DATASET, EngineWorld, derived

from harness.engines import engine_on
from penstock._native import Engine, Store, xxh3_64

MIB = 1 << 20


def settled(engine: Engine) -> int:
    """Bytes held when nothing is under way any more."""
    held, quiet_since = -1, time.monotonic()
    deadline = time.monotonic() + 30
    while time.monotonic() < quiet_since + 0.3:
        assert time.monotonic() < deadline
        stats = engine.stats()
        if stats["held_bytes"] != held or stats["inflight_samples"] > 0:
            held, quiet_since = stats["held_bytes"], time.monotonic()
        time.sleep(0.01)
    return held


@pytest.fixture(scope="module")
def near_store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Sixty samples of a mebibyte in LMDB."""
    config = {"kind": "lmdb", "path": str(tmp_path_factory.mktemp("near"))}
    with Store.open(json.dumps(config)) as store:
        store.write(
            "samples", DATASET, [(derived("object", index), [("image", _content(index))]) for index in range(60)]
        )
        yield store


def _content(index: int) -> bytes:
    return derived("content", index) * (MIB // 16)


def _engine_on(store: Store, **changes: Any) -> Engine:
    ids = b"".join(derived("object", index) for index in range(60))
    sizes = np.full(60, MIB, "<u8")
    sums = np.array([xxh3_64(_content(index)) for index in range(60)], "<u8")
    return engine_on(
        store,
        dataset_id=DATASET,
        fields=["image"],
        parts=[(ids, [(ids, sizes.tobytes(), sums.tobytes())])],
        batch_size=2,
        shuffle=False,
        **changes,
    )


def test_a_chosen_budget_is_not_lowered_for_a_store_on_this_machine(near_store: Store) -> None:
    held = {}
    for is_fixed in (True, False):
        with _engine_on(near_store, prefetch_bytes=48 * MIB, is_prefetch_fixed=is_fixed) as engine:
            engine.start_epoch(0)
            held[is_fixed] = settled(engine)
    assert 40 * MIB < held[True] <= 48 * MIB
    assert held[False] <= 32 * MIB


def test_a_smaller_budget_is_kept_and_a_larger_one_used() -> None:
    world = EngineWorld(400, most_bytes=20_000)
    with world.engine(world.store(), batch_size=8, window_bytes=None, prefetch_bytes=2 * MIB) as engine:
        engine.start_epoch(0)
        before = settled(engine)
        assert before > MIB
        assert engine.set_prefetch_bytes(MIB // 2) == MIB // 2
        while engine.stats()["held_bytes"] > MIB // 2:
            assert engine.next_batch() is not None
        assert settled(engine) <= MIB // 2
        engine.set_prefetch_bytes(2 * MIB)
        assert settled(engine) > MIB


def test_no_budget_is_smaller_than_the_largest_sample() -> None:
    world = EngineWorld(20, most_bytes=1000)
    with world.engine() as engine:
        assert engine.set_prefetch_bytes(1) >= max(len(world.content("image", index)) for index in range(20))
