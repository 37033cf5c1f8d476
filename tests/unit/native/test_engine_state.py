"""Saving and going on, seen from Python."""

import base64
import json
import time
from typing import Any

import pytest
from property.native.engine_world import EngineWorld

from harness.engines import engine_on
from penstock._native import Engine, Store, blake3


@pytest.fixture(scope="module")
def world() -> EngineWorld:
    return EngineWorld(60)


def walk(world: EngineWorld, engine: Engine, steps: int = 10_000) -> list[int]:
    """Take and acknowledge up to `steps` batches of the epoch under way."""
    seen: list[int] = []
    for _ in range(steps):
        batch = engine.next_batch()
        if batch is None:
            break
        engine.ack(batch.seq)
        seen += [row.position for row in world.rows(batch) if row.is_valid]
    return seen


def test_a_state_is_one_line_of_text_and_goes_on(world: EngineWorld) -> None:
    with world.engine(world.store(delay_ms=[0, 3]), split_digest="b3:abc") as engine:
        engine.start_epoch(4)
        first = walk(world, engine, 6)
        lost = engine.next_batch()
        assert lost is not None
        state = engine.state()
    assert state.startswith("1.")
    assert state.isprintable()
    with world.engine(split_digest="b3:abc") as engine:
        assert engine.resume(state) == (4, 6, 9)
        engine.start_epoch(4)
        batch = engine.next_batch()
        assert batch is not None
        assert batch.step == 6
        engine.ack(batch.seq)
        rest = [row.position for row in world.rows(batch)] + walk(world, engine)
        assert engine.stats()["steps"] == 15
        assert sorted(first + rest) == list(range(60))
        assert engine.resume(engine.state()) == (5, 0, 15)


def test_four_ranks_become_three_and_then_one(world: EngineWorld) -> None:
    seen: list[int] = []
    state: str | None = None
    for world_size, batch_size, steps in ((4, 2, 3), (3, 5, 1), (1, 7, 100)):
        states = []
        for rank in range(world_size):
            with world.engine(rank=rank, world_size=world_size, batch_size=batch_size, last_batch="pad") as engine:
                if state is not None:
                    engine.resume(state)
                engine.start_epoch(0)
                seen += walk(world, engine, steps)
                states.append(engine.state())
        state = Engine.merge_states(states)
    assert sorted(seen) == list(range(60))


def test_a_state_of_another_epoch_is_dropped_by_starting_elsewhere(world: EngineWorld) -> None:
    with world.engine() as engine:
        engine.start_epoch(0)
        walk(world, engine, 5)
        state = engine.state()
        engine.resume(state)
        engine.start_epoch(1)
        assert sorted(walk(world, engine)) == list(range(60))


def test_wrong_states_are_refused_with_the_reason(world: EngineWorld) -> None:
    with world.engine(split_digest="b3:abc") as engine, world.engine(split_digest="b3:def") as other:
        state = engine.state()
        with pytest.raises(ValueError, match="another split: b3:abc was saved, this loader has b3:def"):
            other.resume(state)
        with pytest.raises(ValueError, match="damaged"):
            engine.resume(state[:-1] + ("0" if state[-1] != "0" else "1"))
        with pytest.raises(ValueError, match="not a saved state"):
            engine.resume("hello")
        with pytest.raises(ValueError, match="format 9"):
            engine.resume("9" + state[1:])
    with world.engine(rank=1, world_size=2) as engine:
        state = engine.state()
    with world.engine() as engine, pytest.raises(ValueError, match="rank 1 in a world of 2 alone"):
        engine.resume(state)
    with pytest.raises(ValueError, match="rank 0 is missing"):
        Engine.merge_states([state])
    assert Engine.merge_states([state], allow_skew=True).startswith("1.")
    with pytest.raises(ValueError, match="no state to merge"):
        Engine.merge_states([])


def state_of(world: EngineWorld, *, rank: int, resumed: str | None = None, **changes: Any) -> str:
    """The state of a rank of two after one step of the epoch that it is in."""
    with world.engine(rank=rank, world_size=2, last_batch="pad", **changes) as engine:
        epoch = 0 if resumed is None else engine.resume(resumed)[0]
        engine.start_epoch(epoch)
        walk(world, engine, 1)
        return engine.state()


def test_states_that_do_not_belong_together_are_not_merged(world: EngineWorld) -> None:
    own = [state_of(world, rank=rank) for rank in range(2)]
    merged = Engine.merge_states(own)
    others = {
        "split": state_of(world, rank=1, split_digest="b3:abc"),
        "number of samples": state_of(EngineWorld(59), rank=1),
        "shuffle": state_of(world, rank=1, shuffle=False),
        "seed": state_of(world, rank=1, seed=2),
        "base": state_of(world, rank=1, resumed=merged),
    }
    for what, other in others.items():
        for allow_skew in (False, True):
            with pytest.raises(ValueError, match=f"they differ in {what}"):
                Engine.merge_states([own[0], other], allow_skew=allow_skew)
    with pytest.raises(ValueError, match="damaged"):
        Engine.merge_states([own[0], own[1][:-1] + ("0" if own[1][-1] != "0" else "1")])


@pytest.mark.parametrize("gap", [1, 130])
def test_a_state_has_six_bytes_for_each_sample_that_is_not_acknowledged(gap: int) -> None:
    n, taken = 60_000, 400
    with without_fields(n, batch_size=1, prefetch_bytes=1 << 20) as engine:
        engine.start_epoch(2**63)
        open_samples = 0
        for step in range(taken * (gap + 1)):
            batch = engine.next_batch()
            assert batch is not None
            # Every one that stays open is a hole of its own.
            if step % (gap + 1):
                engine.ack(batch.seq)
            else:
                open_samples += 1
        state = engine.state()
        assert open_samples == taken
        assert len(state) <= 1024 + 6 * open_samples
        # Not only because holes were left out.
        assert engine.resume(state) == (2**63, taken * gap, n - taken * gap)


def without_fields(n: int, **changes: Any) -> Engine:
    """An engine over samples of which only the ids are wanted, with as long a header as there may be."""
    ids = b"".join(index.to_bytes(16, "big") for index in range(n))
    store = Store.open(json.dumps({"kind": "memory", "name": "without-fields"}))
    arguments = {"seed": 2**64 - 1, "in_order": True, "split_digest": "b3:" + "f" * 64}
    return engine_on(store, dataset_id=bytes(16), fields=[], parts=[(ids, [])], **arguments | changes)


def number(value: int) -> bytes:
    """A varint."""
    low = value & 0x7F
    return bytes([low]) if value < 0x80 else bytes([low | 0x80]) + number(value >> 7)


def merged_state(n: int, runs: int) -> str:
    """As docs/formats.md describes it: every other one of the first places is done."""
    header = json.dumps(
        {"order": "penstock-feistel-1", "split": "", "n": n, "shuffle": True, "seed": 1, "epoch": 0, "steps": 9}
        | {"share": None}
    ).encode()
    base = number(runs) + number(0) + number(1) + (number(1) + number(1)) * (runs - 1)
    payload = number(len(header)) + header + number(0) + base
    text = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return f"1.{text}.{blake3(payload).hex()[:16]}"


def test_a_large_state_is_taken_in_a_millisecond() -> None:
    n, runs, holes = 120_000, 50_000, 4_000
    ids = b"".join(index.to_bytes(16, "big") for index in range(n))
    with (
        Store.open(json.dumps({"kind": "memory", "name": "large-state"})) as store,
        Engine(
            store, dataset_id=bytes(16), fields=[], parts=[(ids, [])], batch_size=2, shuffle=True, seed=1, rank=0,
            world_size=2, last_batch="pad", in_order=True, window_bytes=None, prefetch_bytes=1 << 26,
        ) as engine,
    ):  # fmt: skip
        engine.resume(merged_state(n, runs))
        engine.start_epoch(0)
        for step in range(2 * holes + 1):
            batch = engine.next_batch()
            assert batch is not None
            if step % 2:
                engine.ack(batch.seq)
        taken = []
        for _ in range(30):
            started = time.perf_counter()
            state = engine.state()
            taken.append(time.perf_counter() - started)
        assert len(state) > runs
        assert engine.resume(state)[:2] == (0, 9 + holes)
    # One millisecond on a free machine.
    assert min(taken) < 0.003, taken
