"""Memory of batches: writable, stable, and used again only when nobody can see it."""

import gc
import weakref

import numpy as np
import pytest
from property.native.engine_world import EngineWorld, epoch_of


@pytest.fixture(scope="module")
def world() -> EngineWorld:
    return EngineWorld(48, most_bytes=6000)


def test_views_are_writable_and_page_aligned(world: EngineWorld) -> None:
    with world.engine() as engine:
        engine.start_epoch(0)
        batch = engine.next_batch()
        assert batch is not None
        arena, _ = batch.field("image")
        view = memoryview(arena)
        assert not view.readonly
        array = np.frombuffer(memoryview(arena), "u1")
        assert array.flags.writeable
        assert array.ctypes.data % 4096 == 0
        before = view[0]
        array[0] ^= 0xFF
        assert view[0] == before ^ 0xFF


def test_a_view_keeps_its_bytes_after_batch_arena_and_engine_are_gone(world: EngineWorld) -> None:
    engine = world.engine()
    engine.start_epoch(0)
    batch = engine.next_batch()
    assert batch is not None
    kept = np.frombuffer(memoryview(batch.field("image")[0]), "u1")
    expected = kept.copy()
    died = weakref.ref(batch)
    del batch
    gc.collect()
    assert died() is None
    while engine.next_batch() is not None:
        pass
    for epoch in range(1, 4):
        epoch_of(engine, epoch)
    assert np.array_equal(kept, expected)
    engine.close()
    del engine
    gc.collect()
    assert np.array_equal(kept, expected)


def test_list_of_all_batches_holds_different_memory(world: EngineWorld) -> None:
    # 48 samples of up to 12 kB are far more than the budget: what Python holds does not count.
    with world.engine(prefetch_bytes=20_000, window_bytes=20_000) as engine:
        batches = epoch_of(engine, 0)
        addresses = {np.frombuffer(memoryview(b.field("image")[0]), "u1").ctypes.data for b in batches}
        assert len(addresses) == len(batches) == 12
        for batch in batches:
            world.check_bytes(batch)


def test_blocks_are_used_again_when_released(world: EngineWorld) -> None:
    with world.engine(prefetch_bytes=100_000) as engine:
        for epoch in range(3):
            epoch_of(engine, epoch)
        gc.collect()
        stats = engine.stats()
        # Three epochs went through, but only what is read ahead is still there.
        assert stats["arena_lent_bytes"] <= 200_000
        assert stats["arena_idle_bytes"] <= 100_000


def test_two_arenas_of_a_field_are_the_same_memory(world: EngineWorld) -> None:
    with world.engine() as engine:
        engine.start_epoch(0)
        batch = engine.next_batch()
        assert batch is not None
        first, second = (memoryview(batch.field("image")[0]) for _ in range(2))
        first[0] ^= 1
        assert first == second


def test_empty_field_has_an_empty_view() -> None:
    world = EngineWorld(3, most_bytes=0)
    with world.engine() as engine:
        (batch,) = epoch_of(engine, 0)
        arena, offsets = batch.field("image")
        assert len(arena) == 0
        assert bytes(memoryview(arena)) == b""
        assert offsets == bytes(32)
