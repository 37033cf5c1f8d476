"""Memory of batches: writable, stable, and used again only when nobody can see it."""

import ctypes
import gc
import json
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from property.native.engine_world import FIELDS, EngineWorld, epoch_of
from torch.utils.dlpack import from_dlpack

from penstock._native import Arena, Engine, Store


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
        for each in epoch_of(engine, 1):
            for field in FIELDS:
                assert np.frombuffer(memoryview(each.field(field)[0]), "u1").ctypes.data % 4096 == 0


@pytest.mark.parametrize("is_near", [False, True])
def test_batches_are_filled_while_python_keeps_the_interpreter_to_itself(
    world: EngineWorld, tmp_path: Path, is_near: bool
) -> None:
    near = Store.open(json.dumps({"kind": "lmdb", "path": str(tmp_path)}))
    world.fill(near)
    interval = sys.getswitchinterval()
    with world.engine(near if is_near else world.store(delay_ms=[50, 50]), prefetch_next_epoch=False) as engine:
        # From here on no other thread gets the GIL before this one lets it go.
        sys.setswitchinterval(1000)
        try:
            engine.start_epoch(0)
            # A tenth of that on a free machine.
            end = time.perf_counter() + 3
            while time.perf_counter() < end:
                pass
            stats = engine.stats()
        finally:
            sys.setswitchinterval(interval)
        assert stats["copy"]["count"] == stats["ready_batches"] == 12
        for batch in epoch_of(engine, 0):
            world.check_bytes(batch)
    near.close()


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


def first_arena(engine: Engine) -> Arena:
    engine.start_epoch(0)
    batch = engine.next_batch()
    assert batch is not None
    return batch.field("image")[0]


def of_numpy(arena: Arena) -> Any:
    return np.from_dlpack(arena)


def of_torch(arena: Arena) -> Any:
    return from_dlpack(arena)


def of_old_capsule(arena: Arena) -> Any:
    return from_dlpack(arena.__dlpack__())


VIEWS = pytest.mark.parametrize("view", [of_numpy, of_torch, of_old_capsule, memoryview])


@VIEWS
def test_tensor_is_the_arena_itself_writable_and_of_bytes(world: EngineWorld, view: Callable[[Arena], Any]) -> None:
    with world.engine() as engine:
        arena = first_arena(engine)
        seen, tensor = memoryview(arena), view(arena)
        assert len(tensor) == len(arena)
        assert tensor.tolist() == seen.tolist()
        tensor[3] = 200
        assert seen[3] == 200
        seen[4] = 201
        assert tensor[4] == 201


@VIEWS
def test_tensor_keeps_the_memory_when_everything_else_is_gone(world: EngineWorld, view: Callable[[Arena], Any]) -> None:
    engine = world.engine()
    tensor = view(first_arena(engine))
    expected = tensor.tolist()
    while engine.next_batch() is not None:
        pass
    for epoch in range(1, 3):
        epoch_of(engine, epoch)
    assert tensor.tolist() == expected
    engine.close()
    del engine
    gc.collect()
    assert tensor.tolist() == expected


@VIEWS
def test_memory_returns_to_the_pool_when_the_last_view_is_gone(
    world: EngineWorld, view: Callable[[Arena], Any]
) -> None:
    with world.engine(prefetch_next_epoch=False) as engine:
        epoch_of(engine, 0)
        gc.collect()
        assert engine.stats()["arena_lent_bytes"] == 0
        engine.start_epoch(1)
        batch = engine.next_batch()
        assert batch is not None
        held = view(batch.field("image")[0])
        while engine.next_batch() is not None:
            pass
        del batch
        gc.collect()
        lent = engine.stats()["arena_lent_bytes"]
        assert lent > 0
        del held
        gc.collect()
        assert engine.stats()["arena_lent_bytes"] < lent


def test_capsule_that_nobody_takes_gives_its_memory_back(world: EngineWorld) -> None:
    with world.engine(prefetch_next_epoch=False) as engine:
        for batch in epoch_of(engine, 0):
            arena = batch.field("image")[0]
            capsules = [arena.__dlpack__(), arena.__dlpack__(max_version=(1, 1)), arena.__dlpack__(max_version=(0, 8))]
            assert [repr(capsule).split('"')[1] for capsule in capsules] == [
                "dltensor",
                "dltensor_versioned",
                "dltensor",
            ]
            del batch, arena, capsules
        gc.collect()
        assert engine.stats()["arena_lent_bytes"] == 0


def test_a_capsule_is_taken_once_only(world: EngineWorld) -> None:
    with world.engine() as engine:
        capsule = first_arena(engine).__dlpack__()
        tensor = from_dlpack(capsule)
        with pytest.raises((RuntimeError, ValueError, BufferError)):
            from_dlpack(capsule)
        assert len(tensor) > 0


def test_tensor_released_by_another_thread_is_harmless(world: EngineWorld) -> None:
    with world.engine(prefetch_next_epoch=False) as engine:
        tensors = [from_dlpack(batch.field("image")[0]) for batch in epoch_of(engine, 0)]
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()
        gc.collect()
        assert engine.stats()["arena_lent_bytes"] == 0


def test_device_is_this_machine_and_no_other_is_given(world: EngineWorld) -> None:
    with world.engine() as engine:
        arena = first_arena(engine)
        assert arena.__dlpack_device__() == (1, 0)
        assert len(np.from_dlpack(arena, device="cpu", copy=False)) == len(arena)
        with pytest.raises(BufferError, match="then move it"):
            arena.__dlpack__(dl_device=(2, 0))
        with pytest.raises(BufferError, match="then move it"):
            arena.__dlpack__(stream=7)
        with pytest.raises(BufferError, match="then copy it"):
            arena.__dlpack__(copy=True)


def test_writing_into_views_of_one_epoch_never_reaches_another(world: EngineWorld) -> None:
    """Also not through a view that was kept and is written to while the next epochs are read and copied."""
    with world.engine() as engine:
        kept = [np.from_dlpack(batch.field("image")[0]) for batch in epoch_of(engine, 0)]
        for epoch in range(1, 4):
            engine.start_epoch(epoch)
            while (batch := engine.next_batch()) is not None:
                for view in kept:
                    view[:] = epoch
                world.check_bytes(batch)
                mine = np.from_dlpack(batch.field("image")[0])
                mine[:] = 99
                engine.ack(batch.seq)
        assert all((view == 3).all() for view in kept)


def test_slices_of_samples_outlive_the_batch(world: EngineWorld) -> None:
    """Samples of `decode=None` are slices: each of them holds the whole block, and no other."""
    with world.engine() as engine:
        slices = []
        for batch in epoch_of(engine, 0):
            arena, offsets = batch.field("image")
            starts = np.frombuffer(offsets, "<u8").astype(int)
            whole = np.frombuffer(memoryview(arena), "u1")
            positions = np.frombuffer(batch.positions, "<u8").tolist()
            slices += [(p, whole[a:b]) for p, a, b in zip(positions, starts[:-1], starts[1:], strict=True)]
            del batch, arena, whole
        epoch_of(engine, 1)
        for position, part in slices:
            assert part.tobytes() == world.content("image", position)


def test_released_memoryview_cannot_be_used(world: EngineWorld) -> None:
    with world.engine() as engine:
        view = memoryview(first_arena(engine))
        view.release()
        with pytest.raises(ValueError, match="released"):
            view[0]


def test_releasing_one_memoryview_leaves_the_bytes_to_what_was_made_of_it(world: EngineWorld) -> None:
    with world.engine() as engine:
        view = memoryview(first_arena(engine))
        array = np.frombuffer(view, "u1")
        expected = array.copy()
        view.release()
        gc.collect()
        for epoch in range(1, 4):
            epoch_of(engine, epoch)
        assert np.array_equal(array, expected)


def test_writing_into_views_of_an_ended_engine_reaches_no_other(world: EngineWorld) -> None:
    with world.engine() as engine:
        kept = [view(batch.field("image")[0]) for batch in epoch_of(engine, 0) for view in (of_numpy, of_torch)]
    del engine
    gc.collect()
    with world.engine() as other:
        other.start_epoch(0)
        while (batch := other.next_batch()) is not None:
            for view in kept:
                view[:] = 77
            world.check_bytes(batch)
    assert all((view == 77).all() for view in kept)


def test_address_of_a_returned_block_is_not_handed_out_while_a_raw_view_of_it_lives(world: EngineWorld) -> None:
    """What ctypes makes of a buffer holds it too: no way of looking at the bytes escapes the count."""
    with world.engine() as engine:
        arena = first_arena(engine)
        raw = (ctypes.c_uint8 * len(arena)).from_buffer(arena)
        expected = bytes(raw)
        address = ctypes.addressof(raw)
        del arena
        gc.collect()
        for epoch in range(1, 4):
            for batch in epoch_of(engine, epoch):
                assert np.frombuffer(memoryview(batch.field("image")[0]), "u1").ctypes.data != address
        assert bytes(raw) == expected
