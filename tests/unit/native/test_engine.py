"""The engine's promises, seen from Python."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from property.native.engine_world import EngineWorld, derived, epoch_of

from harness.engines import engine_on
from penstock._errors import LoaderFailure, SampleCorrupt, SampleMissing, StoreUnavailable
from penstock._native import Engine, Store


@pytest.fixture(scope="module")
def world() -> EngineWorld:
    return EngineWorld(50)


def positions_of(world: EngineWorld, engine: Engine, epoch: int) -> list[int]:
    return [row.position for batch in epoch_of(engine, epoch) for row in world.rows(batch) if row.is_valid]


def exhaust(engine: Engine) -> None:
    while engine.next_batch() is not None:
        pass


def test_every_sample_comes_once_with_its_bytes(world: EngineWorld) -> None:
    with world.engine(world.store(delay_ms=[0, 3])) as engine:
        assert engine.sample_count == 50
        assert engine.steps() == 13
        for epoch in range(3):
            batches = epoch_of(engine, epoch)
            for batch in batches:
                world.check_bytes(batch)
            seen = [row.position for batch in batches for row in world.rows(batch)]
            assert sorted(seen) == list(range(50))


def test_an_lmdb_store_is_read_alike(world: EngineWorld, tmp_path: Path) -> None:
    config = {"kind": "lmdb", "path": str(tmp_path), "is_read_only": False}
    with Store.open(json.dumps(config)) as store:
        world.fill(store)
        with world.engine(store, window_bytes=None) as engine:
            for epoch in range(2):
                batches = epoch_of(engine, epoch)
                for batch in batches:
                    world.check_bytes(batch)
                assert sorted(row.position for batch in batches for row in world.rows(batch)) == list(range(50))


def test_labels_pair_by_position_out_of_order(world: EngineWorld) -> None:
    labels = np.random.default_rng(0).integers(0, 1000, world.n)
    by_id = {derived("sample", i): int(label) for i, label in enumerate(labels)}
    with world.engine(world.store(delay_ms=[0, 5], slow_share=0.1, slow_ms=30)) as engine:
        for batch in epoch_of(engine, 0):
            gathered = labels[np.frombuffer(batch.positions, "<u8").astype(np.int64)]
            ids = [batch.ids[i : i + 16] for i in range(0, len(batch.ids), 16)]
            assert gathered.tolist() == [by_id[sample_id] for sample_id in ids]


def test_in_order_gives_the_same_batches_every_time(world: EngineWorld) -> None:
    def ids(seed: int) -> list[bytes]:
        store = world.store(delay_ms=[0, 4], seed=seed)
        with world.engine(store, in_order=True) as engine:
            return [batch.ids for batch in epoch_of(engine, 5)]

    assert ids(1) == ids(2)


def test_shuffle_changes_with_the_epoch_and_not_without(world: EngineWorld) -> None:
    with world.engine(in_order=True) as engine:
        assert positions_of(world, engine, 0) != positions_of(world, engine, 1)
    with world.engine(in_order=True, shuffle=False) as engine:
        assert positions_of(world, engine, 3) == list(range(50))


def test_out_of_order_a_slow_sample_does_not_hold_up_its_batch(world: EngineWorld) -> None:
    store = world.store(delay_ms=[0, 1], slow_share=0.06, slow_ms=400, seed=3)
    with world.engine(store, shuffle=False, fields=("image",), max_displacement=100) as engine:
        seen = positions_of(world, engine, 0)
        assert sorted(seen) == list(range(50))
        assert seen != list(range(50))


@pytest.mark.parametrize(("policy", "sizes"), [("drop", [4] * 3), ("partial", [4, 4, 4, 1]), ("pad", [4] * 4)])
def test_last_batch_policy_on_four_ranks(world: EngineWorld, policy: str, sizes: list[int]) -> None:
    valid: list[int] = []
    for rank in range(4):
        with world.engine(rank=rank, world_size=4, last_batch=policy) as engine:
            batches = epoch_of(engine, 0)
            rows = [world.rows(batch) for batch in batches]
            assert [len(r) for r in rows][:-1] == sizes[:-1]
            assert len(rows[-1]) <= sizes[-1]
            valid += [row.position for batch in rows for row in batch if row.is_valid]
    assert len(valid) == len(set(valid)) == (48 if policy == "drop" else 50)


def test_starting_another_epoch_drops_the_one_under_way(world: EngineWorld) -> None:
    with world.engine(world.store(delay_ms=[1, 6])) as engine:
        for epoch in range(6):
            engine.start_epoch(epoch)
            batch = engine.next_batch()
            assert batch is not None
            assert batch.epoch == epoch
        assert sorted(positions_of(world, engine, 2)) == list(range(50))


def test_after_the_last_batch_there_is_none(world: EngineWorld) -> None:
    with world.engine() as engine:
        epoch_of(engine, 0)
        assert engine.next_batch() is None
        assert engine.next_batch() is None


def test_ids_only_works_without_fields(world: EngineWorld) -> None:
    with world.engine(fields=()) as engine:
        assert sorted(positions_of(world, engine, 0)) == list(range(50))
        assert engine.stats()["requests"] == 0
        engine.start_epoch(9)
        batch = engine.next_batch()
        assert batch is not None
        with pytest.raises(KeyError, match='no field "image"'):
            batch.field("image")


def test_first_batch_of_very_many_small_samples_comes_soon() -> None:
    """A budget may be full of samples, in tens of thousands of batches, before the first of them is closed."""
    ids = b"".join(index.to_bytes(16, "big") for index in range(120_000))
    store = Store.open(json.dumps({"kind": "memory", "name": "small-samples"}))
    arguments: dict[str, Any] = {"dataset_id": bytes(16), "fields": [], "parts": [(ids, [])], "batch_size": 2}
    for in_order in (False, True):
        with engine_on(store, in_order=in_order, prefetch_bytes=64 << 20, **arguments) as engine:
            started = time.monotonic()
            engine.start_epoch(0)
            assert engine.next_batch() is not None
            # Well under a second on a free machine; a minute when every sample looks through all batches.
            assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("n", "changes", "steps"),
    [
        (1, {}, 1),
        (1, {"last_batch": "pad", "batch_size": 5}, 1),
        (3, {"batch_size": 100}, 1),
        (3, {"batch_size": 100, "last_batch": "drop"}, 0),
        (2, {"rank": 6, "world_size": 7, "last_batch": "pad"}, 1),
        (2, {"rank": 6, "world_size": 7}, 1),
    ],
)
def test_small_subsets_simply_work(n: int, changes: dict[str, Any], steps: int) -> None:
    world = EngineWorld(n)
    with world.engine(**changes) as engine:
        assert len(epoch_of(engine, 0)) == steps


BAD = [
    ({"batch_size": 0}, ValueError, "batch_size is 0"),
    ({"batch_size": -1}, ValueError, "batch_size is -1"),
    ({"batch_size": 2.5}, TypeError, "batch_size has to be a whole number"),
    ({"rank": 2, "world_size": 2}, ValueError, "rank 2 is outside a world of 2"),
    ({"rank": -1}, ValueError, "rank is -1"),
    ({"world_size": 0}, ValueError, "world_size is 0"),
    ({"seed": -5}, ValueError, "seed is -5"),
    ({"last_batch": "keep"}, ValueError, "last_batch is drop, partial or pad, not .keep"),
    ({"on_error": "ignore"}, ValueError, "on_error is raise, skip or replace, not .ignore"),
    ({"window_bytes": 0}, ValueError, "window_bytes is 0"),
    ({"prefetch_bytes": 5}, ValueError, "more than prefetch_bytes"),
    ({"max_displacement": -1}, ValueError, "max_displacement is -1"),
    ({"max_displacement": 2**63}, ValueError, r"at most 2\*\*63 - 1"),
    ({"max_displacement": 2**64}, ValueError, "max_displacement is"),
    ({"idle_seconds": 0.0}, ValueError, "idle is 0"),
    ({"max_failed_share": 2.0}, ValueError, "between 0 and 1"),
    ({"store_wait_seconds": -1.0}, ValueError, "store_wait_seconds is -1"),
    ({"dataset_id": b"short"}, ValueError, "dataset_id has to be 16 bytes"),
    ({"parts": []}, ValueError, "the subset is empty"),
    ({"parts": [(b"", [(b"", b"", b"")] * 2)]}, ValueError, "the subset is empty"),
    ({"parts": [(bytes(17), [(b"", b"", b"")] * 2)]}, ValueError, "ids has 17 bytes"),
    ({"parts": [(bytes(16), [(bytes(16), bytes(8), bytes(8))])]}, ValueError, "columns for 1 fields, but 2"),
    (
        {"parts": [(bytes(32), [(bytes(32), bytes(16), bytes(8))] * 2)]},
        ValueError,
        'checksums of field "image" has 1 rows, but there are 2',
    ),
    ({"parts": [("text", [])]}, TypeError, "columns of members are buffers"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BAD, ids=[message for _, _, message in BAD])
def test_bad_arguments_are_refused_at_once(
    world: EngineWorld, changes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        world.engine(**changes)


def test_a_repeated_field_is_refused(world: EngineWorld) -> None:
    with pytest.raises(ValueError, match='field "image" is asked for twice'):
        world.engine(fields=("image", "image"))


def test_next_batch_before_an_epoch_says_what_to_do(world: EngineWorld) -> None:
    with world.engine() as engine, pytest.raises(ValueError, match="call start_epoch first"):
        engine.next_batch()


def test_ack_of_an_unknown_batch_is_refused(world: EngineWorld) -> None:
    with world.engine() as engine, pytest.raises(ValueError, match="batch 3 has not been handed out"):
        engine.ack(3)


def test_a_missing_sample_is_named_with_field_and_attempts(world: EngineWorld) -> None:
    with world.engine(world.store(missing_share=1.0)) as engine:
        engine.start_epoch(0)
        with pytest.raises(SampleMissing, match=r"sample [0-9a-f-]{36}, fields? .*asked \d+ times"):
            engine.next_batch()
        with pytest.raises(SampleMissing):
            engine.next_batch()
        assert engine.stats()["errors"] > 0


def test_bytes_that_contradict_the_split_are_corrupt(world: EngineWorld) -> None:
    ids, columns = world.parts()[0]
    objects, sizes, sums = columns[0]
    with world.engine(parts=[(ids, [(objects, sizes, sums + 1)])], fields=("image",)) as engine:
        engine.start_epoch(0)
        with pytest.raises(SampleCorrupt, match="the split says"):
            engine.next_batch()


def test_a_store_that_is_away_is_waited_for(world: EngineWorld) -> None:
    with world.engine(world.store(unavailable_share=1.0, faulty_reads=3)) as engine:
        assert sorted(positions_of(world, engine, 0)) == list(range(50))
        assert engine.stats()["retries"] > 100
    with world.engine(world.store(unavailable_share=1.0), store_wait_seconds=0.0) as engine:
        engine.start_epoch(0)
        with pytest.raises(StoreUnavailable, match="sample"):
            engine.next_batch()


def test_skip_and_replace_keep_the_steps_and_report(world: EngineWorld) -> None:
    for on_error in ("skip", "replace"):
        store = world.store(missing_share=0.2, seed=4)
        with world.engine(store, on_error=on_error, max_failed_share=1.0, prefetch_next_epoch=False) as engine:
            rows = [row for batch in epoch_of(engine, 0) for row in world.rows(batch)]
            failed = {row[1] for row in engine.failures()}
            read = {derived("sample", row.position) for row in rows if row.is_valid}
            assert failed
            assert not failed & read
            assert len(failed) + len(read) == 50
            assert len(rows) == (50 if on_error == "replace" else len(read))


def test_too_many_failures_are_a_group(world: EngineWorld) -> None:
    with world.engine(world.store(missing_share=0.5), on_error="skip", max_failed_share=0.05) as engine:
        engine.start_epoch(0)
        with pytest.raises(LoaderFailure, match="could not be read") as caught:
            exhaust(engine)
        assert isinstance(caught.value.exceptions[0], SampleMissing)


def test_stats_have_the_documented_structure(world: EngineWorld) -> None:
    with world.engine(world.store(delay_ms=[1, 2]), batch_size=10, prefetch_next_epoch=False) as engine:
        batches = epoch_of(engine, 0)
        stats = engine.stats()
    assert stats["samples"] == 50
    assert stats["batches"] == stats["acknowledged"] == stats["step"] == stats["steps"] == 5
    assert stats["bytes"] == sum(len(batch.field(f)[0]) for batch in batches for f in ("image", "mask"))
    assert stats["requests"] == 50 + 17
    assert stats["retries"] == stats["errors"] == stats["inflight_bytes"] == 0
    assert stats["window_bytes"] == 1 << 20
    assert stats["wait_seconds"] > 0
    assert stats["request"]["count"] == 50
    assert 1 <= stats["request"]["p50_ms"] <= stats["request"]["p99_ms"] <= stats["request"]["max_ms"]
    assert sum(count for _, count in stats["request"]["buckets"]) == 50
    assert stats["copy"]["count"] == stats["wait"]["count"] == stats["deliver"]["count"] == 5
    assert stats["verify"]["count"] == 67


def test_budget_holds(world: EngineWorld) -> None:
    store = world.store(delay_ms=[0, 2])
    with world.engine(store, prefetch_bytes=6000, window_bytes=3000, batch_size=2) as engine:
        epoch_of(engine, 0)
        stats = engine.stats()
        assert stats["peak_inflight_bytes"] <= 3000
        assert stats["peak_held_bytes"] <= 6000 + 2 * 2 * 1000


def test_a_window_that_nobody_set_stays_within_the_budget(world: EngineWorld) -> None:
    with world.engine(window_bytes=None, prefetch_bytes=3 << 20) as engine:
        epoch_of(engine, 0)
        assert 1 << 20 <= engine.stats()["window_bytes"] <= 3 << 20


def test_members_buffers_may_change_afterwards_when_they_are_writable(world: EngineWorld) -> None:
    parts = [
        (bytearray(ids), [tuple(bytearray(bytes(column)) for column in columns) for columns in fields])
        for ids, fields in world.parts()
    ]
    with world.engine(parts=parts) as engine:
        for ids, fields in parts:
            for buffer in (ids, *(column for columns in fields for column in columns)):
                buffer[:] = bytes(len(buffer))
        assert sorted(positions_of(world, engine, 0)) == list(range(50))


def test_repr_says_what_it_is(world: EngineWorld) -> None:
    with world.engine() as engine:
        assert repr(engine) == "<penstock Engine, 50 samples, 13 steps>"
        engine.start_epoch(0)
        assert "4 samples" in repr(engine.next_batch())
