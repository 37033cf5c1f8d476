"""Whatever the store does and wherever the consumer breaks off: every id of the epoch exactly once."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.native.engine_world import EngineWorld, epoch_of

from harness.soak import repetitions

WORLDS: dict[int, EngineWorld] = {}


def world_of(n: int) -> EngineWorld:
    return WORLDS.setdefault(n, EngineWorld(n))


FAULTS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "delay_ms": st.tuples(st.just(0.0), st.floats(0.0, 3.0)),
        "slow_share": st.floats(0.0, 0.1),
        "slow_ms": st.just(12.0),
        "unavailable_share": st.floats(0.0, 0.2),
        "faulty_reads": st.integers(1, 2),
    }
)
ENGINE = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 20),
        "last_batch": st.sampled_from(["drop", "partial", "pad"]),
        "in_order": st.booleans(),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
        "max_displacement": st.integers(1, 9),
        "window_bytes": st.none() | st.integers(1, 5000),
        "prefetch_bytes": st.integers(900, 9000),
        "prefetch_next_epoch": st.booleans(),
        "fields": st.sampled_from([("image",), ("image", "mask"), ("mask",), ()]),
    }
)


@settings(max_examples=repetitions(25, 2_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(1, 60),
    world_size=st.integers(1, 4),
    faults=FAULTS,
    arguments=ENGINE,
    breaks=st.lists(st.integers(0, 4), max_size=3),
)
def test_every_id_is_delivered_exactly_once(
    n: int, world_size: int, faults: dict[str, Any], arguments: dict[str, Any], breaks: list[int]
) -> None:
    world = world_of(n)
    times: Counter[int] = Counter()
    steps = set()
    for rank in range(world_size):
        with world.engine(world.store(**faults), rank=rank, world_size=world_size, **arguments) as engine:
            for epoch, taken in enumerate(breaks):
                engine.start_epoch(epoch)
                for _ in range(taken):
                    engine.next_batch()
            batches = epoch_of(engine, len(breaks))
            steps.add(len(batches))
            for batch in batches:
                world.check_bytes(batch, arguments["fields"])
                times.update(row.position for row in world.rows(batch) if row.is_valid)
    assert len(steps) == 1
    assert set(times.values()) <= {1}
    dropped = n - len(times)
    if arguments["last_batch"] == "drop":
        assert dropped < arguments["batch_size"] * world_size
    else:
        assert dropped == 0
