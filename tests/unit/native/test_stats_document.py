"""Every number that the engine gives stands in docs/stats.md, and nothing else."""

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from property.native.engine_world import EngineWorld, epoch_of

import penstock
from penstock._native import Engine

DOCUMENT = Path(__file__).parents[3] / "docs" / "stats.md"
STUB = Path(penstock.__file__).with_name("_native.pyi")


def documented(heading: str) -> list[set[str]]:
    """The keys of each table below a heading."""
    section = DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [
        {key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])} for table in tables
    ]


def test_the_document_has_every_key_and_no_other() -> None:
    world = EngineWorld(9)
    with world.engine() as engine:
        epoch_of(engine, 0)
        stats = engine.stats()
    stages, of_a_stage = documented("Stages")
    assert documented("Counters")[0] | documented("Gauges")[0] | stages | {"lane_stats"} == set(stats)
    assert of_a_stage == set(stats["request"])


def in_the_stub(name: str) -> list[str]:
    """The keys of a dict of the native module."""
    found = re.search(rf"class {name}\(TypedDict\):(.*?)\n(?:class |@final)", STUB.read_text(), re.DOTALL)
    assert found is not None
    return re.findall(r"^    (\w+): ", found[1], re.MULTILINE)


def test_the_stub_has_every_key_and_no_other() -> None:
    with EngineWorld(9).engine() as engine:
        stats = engine.stats()
    assert in_the_stub("_EngineStats") == list(stats)
    assert in_the_stub("_Stage") == list(stats["request"])


def test_document_and_stub_agree_on_a_lane() -> None:
    # Lanes themselves are compared where there are some: tests/integration/store/test_store_cql.py.
    assert documented("Lanes") == [set(in_the_stub("_LaneStats"))]


def test_taking_the_stats_is_quick_while_reading_goes_on() -> None:
    world = EngineWorld(600)
    durations = []
    with world.engine(world.store(delay_ms=[0, 2])) as engine:
        engine.start_epoch(0)
        while engine.next_batch() is not None:
            started = time.perf_counter()
            engine.stats()
            durations.append(time.perf_counter() - started)
    assert len(durations) == 150
    # 50 microseconds are promised; the slack is for a busy machine.
    assert min(durations) < 150e-6, sorted(durations)[:5]


def test_counters_never_fall_whatever_happens_to_the_epoch() -> None:
    counters = documented("Counters")[0]
    world = EngineWorld(200)
    store = world.store(seed=3, delay_ms=[0, 2], missing_share=0.02, unavailable_share=0.1, faulty_reads=2)
    taken: list[dict[str, float]] = [dict.fromkeys(counters, 0)]
    with world.engine(store, on_error="skip", max_failed_share=1.0, idle_seconds=0.05, batch_size=8) as engine:
        for epoch, steps in enumerate((3, 0, 25, 7)):
            engine.start_epoch(epoch)
            for step in range(steps):
                batch = engine.next_batch()
                assert batch is not None
                if step % 2:
                    engine.ack(batch.seq)
                if step == 5:
                    wait_for_park(engine)
                stats: dict[str, Any] = {**engine.stats()}
                taken.append({key: stats[key] for key in counters})
    for before, after in pairwise(taken):
        assert {key for key in counters if after[key] < before[key]} == set()
    assert {"samples", "requests", "retries", "errors", "skipped", "parks"} <= {
        key for key, value in taken[-1].items() if value > 0
    }


def wait_for_park(engine: Engine) -> None:
    parks, deadline = engine.stats()["parks"], time.monotonic() + 20
    while engine.stats()["parks"] == parks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
