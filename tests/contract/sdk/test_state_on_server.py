"""States of loaders against a real server whose dataset and splits have moved on."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.server.data.builders import SCHEMA, items
from unit.server.data.test_data_api import RECIPE, Api, served

import penstock
from penstock import Client

OPTIONS: dict[str, Any] = {"batch_size": 4, "shuffle": True, "decode": None, "output": "numpy", "telemetry": False}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setenv("PENSTOCK_CACHE_FOLDER", str(tmp_path / "cache"))
    with served(tmp_path) as api:
        api.client.post("/datasets", json={"name": "demo", "schema": SCHEMA.model_dump(mode="json")})
        api.publish("demo", items(60))
        split(api, "by-patient")
        yield api


def split(api: Api, name: str, *, seed: int = 7) -> None:
    made = api.client.post("/datasets/demo/splits", json={"name": name, "recipe": RECIPE | {"seed": seed}})
    assert made.status_code in (201, 202), made.text


def client_of(api: Api) -> Client:
    return Client(api.address, token=api.client.headers["Authorization"].removeprefix("Bearer "))


def ids(batches: Any) -> Counter[str]:
    return Counter(text for batch in batches for text, ok in zip(batch.id_strings(), batch["valid"], strict=True) if ok)


def test_a_state_goes_on_with_its_own_split_when_newer_ones_exist(api: Api) -> None:
    with client_of(api) as client:
        with client.loader("demo", split="by-patient/train", **OPTIONS) as loader:
            whole = ids(loader)
            loader.set_epoch(5)
            running = iter(loader)
            seen = ids(next(running) for _ in range(4))
            state = loader.state_dict()
            pinned = str(loader.dataset)
        api.publish("demo", items(90), parent=1)
        split(api, "by-patient", seed=8)
        with client.loader("demo", split="by-patient/train", **OPTIONS) as loader:
            assert str(loader.dataset) != pinned
            loader.load_state_dict(state)
            assert str(loader.dataset) == pinned == "demo@1 by-patient@1/train"
            assert loader.epoch == 5
            assert seen + ids(loader) == whole
            assert ids(loader) == whole


def test_states_of_ranks_merge_and_are_refused_elsewhere(api: Api) -> None:
    with client_of(api) as client:
        states, seen = [], Counter[str]()
        for rank in range(2):
            with client.loader("demo", split="train", rank=rank, world_size=2, **OPTIONS) as loader:
                running = iter(loader)
                seen += ids(next(running) for _ in range(2))
                with pytest.warns(UserWarning, match="alone"):
                    states.append(loader.state_dict())
        merged = penstock.merge_states(states)
        with (
            client.loader("demo", split="by-patient/val", **OPTIONS) as loader,
            pytest.raises(penstock.StateError, match=r"demo@1 by-patient@1/train was saved.*demo by-patient/val"),
        ):
            loader.load_state_dict(merged)
        with client.loader("demo", split="train", **OPTIONS) as loader:
            loader.load_state_dict(merged)
            seen += ids(loader)
            assert seen == ids(loader)
