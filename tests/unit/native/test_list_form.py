"""`form="list"`: each sample as it came from the store, without a copy."""

import ctypes
import gc
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from property.native.engine_world import FIELDS, EngineWorld, epoch_of

from penstock._native import Batch, SampleBytes, Store

KIB = 1024


@pytest.fixture(scope="module")
def world() -> EngineWorld:
    return EngineWorld(50)


@pytest.fixture
def lmdb(world: EngineWorld, tmp_path: Path) -> Iterator[Store]:
    with Store.open(json.dumps({"kind": "lmdb", "path": str(tmp_path)})) as store:
        world.fill(store)
        yield store


def positions(batch: Batch) -> list[int]:
    found: list[int] = np.frombuffer(batch.positions, "<u8").tolist()
    return found


def check_samples(world: EngineWorld, batch: Batch) -> None:
    for field in FIELDS:
        samples = batch.samples(field)
        assert len(samples) == batch.size
        for sample, position in zip(samples, positions(batch), strict=True):
            assert isinstance(sample, SampleBytes)
            assert bytes(sample) == world.content(field, position)
            assert len(sample) == len(world.content(field, position))


def address(sample: SampleBytes) -> int:
    return int(np.frombuffer(memoryview(sample), np.uint8).ctypes.data)


@pytest.mark.parametrize("is_near", [False, True])
def test_every_sample_comes_once_with_its_bytes(world: EngineWorld, lmdb: Store, is_near: bool) -> None:
    with world.engine(lmdb if is_near else world.store(delay_ms=[0, 3]), form="list") as engine:
        for epoch in range(2):
            batches = epoch_of(engine, epoch)
            for batch in batches:
                check_samples(world, batch)
            assert sorted(itertools.chain.from_iterable(map(positions, batches))) == list(range(50))


def test_each_form_has_its_own_way_to_the_bytes(world: EngineWorld) -> None:
    with world.engine(form="list") as lists, world.engine() as arenas:
        a_list, an_arena = epoch_of(lists, 0)[0], epoch_of(arenas, 0)[0]
    with pytest.raises(TypeError, match=r"use samples\(\) instead of field\(\)"):
        a_list.field("image")
    with pytest.raises(TypeError, match=r"use field\(\) instead of samples\(\)"):
        an_arena.samples("image")
    with pytest.raises(KeyError, match='no field "depth"'):
        a_list.samples("depth")


@pytest.mark.parametrize("is_near", [False, True])
def test_samples_are_read_only(world: EngineWorld, lmdb: Store, is_near: bool) -> None:
    with world.engine(lmdb if is_near else None, form="list") as engine:
        sample = max(epoch_of(engine, 0)[0].samples("image"), key=len)
    view = memoryview(sample)
    assert view.readonly
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        np.frombuffer(memoryview(sample), np.uint8)[0] = 1
    with pytest.raises(TypeError):
        ctypes.c_uint8.from_buffer(sample)


def test_samples_are_the_stores_own_memory(world: EngineWorld) -> None:
    with world.engine(form="list", prefetch_next_epoch=False) as engine:
        places: dict[int, set[int]] = {}
        kept = [epoch_of(engine, epoch) for epoch in range(2)]
        for batch in itertools.chain.from_iterable(kept):
            for sample, position in zip(batch.samples("image"), positions(batch), strict=True):
                if len(sample):
                    places.setdefault(position, set()).add(address(sample))
        # The memory store hands out what it holds: a copy would lie elsewhere each time.
        assert {len(addresses) for addresses in places.values()} == {1}
        assert len(places) > 40
        assert engine.stats()["arena_lent_bytes"] == 0


def test_samples_of_a_store_on_this_machine_share_one_block(world: EngineWorld, lmdb: Store) -> None:
    with world.engine(lmdb, form="list", batch_size=50, prefetch_next_epoch=False) as engine:
        batch: Batch | None = epoch_of(engine, 0)[0]
        assert batch is not None
        samples = batch.samples("image")
        starts = [address(sample) for sample in samples if len(sample)]
        sizes = [len(sample) for sample in samples if len(sample)]
        assert [start + size for start, size in zip(starts[:-1], sizes[:-1], strict=True)] == starts[1:]
        where = int(np.argmax([len(sample) for sample in samples]))
        kept, expected = samples[where], world.content("image", positions(batch)[where])
        batch = None
        del samples
        gc.collect()
        lent = engine.stats()["arena_lent_bytes"]
        # The whole block, for one sample of it; that of the other field is back.
        assert lent >= sum(sizes)
        # What would be written into the block if it were free.
        assert len(epoch_of(engine, 1)) == 1
        assert bytes(kept) == expected
        del kept
        gc.collect()
        assert engine.stats()["arena_lent_bytes"] == 0


@pytest.mark.parametrize("is_near", [False, True])
def test_samples_outlive_batch_engine_and_store(world: EngineWorld, tmp_path: Path, is_near: bool) -> None:
    store = Store.open(json.dumps({"kind": "lmdb", "path": str(tmp_path)})) if is_near else world.store()
    if is_near:
        world.fill(store)
    engine = world.engine(store, form="list")
    kept: list[tuple[int, SampleBytes]] = []
    for batch in epoch_of(engine, 0):
        kept += zip(positions(batch), batch.samples("image"), strict=True)
    engine.close()
    store.close()
    del batch, engine, store
    gc.collect()
    with world.engine(form="list") as other:
        epoch_of(other, 0)
        assert all(bytes(sample) == world.content("image", position) for position, sample in kept)


@pytest.mark.parametrize("is_near", [False, True])
def test_samples_of_several_chunks_are_whole(tmp_path: Path, is_near: bool) -> None:
    large = EngineWorld(12, most_bytes=2_000 * KIB)
    assert max(len(large.content("image", index)) for index in range(12)) > 1024 * KIB
    store = Store.open(json.dumps({"kind": "lmdb", "path": str(tmp_path)})) if is_near else large.store()
    with store:
        if is_near:
            large.fill(store)
        with large.engine(store, form="list", prefetch_bytes=1 << 26) as engine:
            for batch in epoch_of(engine, 0):
                check_samples(large, batch)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_what_cannot_be_read_is_left_out_or_replaced(world: EngineWorld, on_error: str) -> None:
    store = world.store(seed=5, missing_share=0.2)
    changes: dict[str, Any] = {"on_error": on_error, "max_failed_share": 1.0, "prefetch_next_epoch": False}
    with world.engine(store, form="list", **changes) as engine:
        batches = epoch_of(engine, 0)
        failed = len(engine.failures())
    assert 0 < failed < 50
    for batch in batches:
        check_samples(world, batch)
    rows = sum(batch.size for batch in batches)
    valid = sum(sum(batch.valid) for batch in batches)
    assert valid == 50 - failed
    assert rows == (50 - failed if on_error == "skip" else 50)


@pytest.mark.parametrize("is_near", [False, True])
def test_padding_is_flagged_and_repeats_a_sample(world: EngineWorld, lmdb: Store, is_near: bool) -> None:
    with world.engine(lmdb if is_near else None, form="list", batch_size=8, last_batch="pad") as engine:
        batches = epoch_of(engine, 0)
    for batch in batches:
        check_samples(world, batch)
    assert [batch.size for batch in batches] == [8] * 7
    valid = [
        position for batch in batches for position, flag in zip(positions(batch), batch.valid, strict=True) if flag
    ]
    assert sorted(valid) == list(range(50))


def test_a_sample_can_be_let_go_in_any_thread(world: EngineWorld, lmdb: Store) -> None:
    with world.engine(lmdb, form="list", prefetch_next_epoch=False) as engine:
        held: list[Any] = [sample for batch in epoch_of(engine, 0) for sample in batch.samples("image")]
        threads = [threading.Thread(target=held.pop) for _ in range(len(held))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        deadline = time.monotonic() + 10
        while engine.stats()["arena_lent_bytes"] > 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
