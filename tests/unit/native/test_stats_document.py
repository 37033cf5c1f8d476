"""Every number that the engine gives stands in docs/stats.md, and nothing else."""

import re
from pathlib import Path

from property.native.engine_world import EngineWorld, epoch_of

import penstock

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


def test_the_stub_has_every_key_and_no_other() -> None:
    stub = STUB.read_text()
    keys = re.search(r"class _EngineStats\(TypedDict\):(.*?)\n@final", stub, re.DOTALL)
    assert keys is not None
    with EngineWorld(9).engine() as engine:
        assert re.findall(r"^    (\w+): ", keys[1], re.MULTILINE) == list(engine.stats())
