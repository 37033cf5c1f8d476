"""The examples in docstrings and in the README run."""

import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from unit.sdk.conftest import NOW
from unit.sdk.http_front import served
from unit.sdk.test_client import DATASET, JOB, SPLIT

import penstock
from penstock import _jobs

PACKAGE = Path(penstock.__file__).parent
README = Path(__file__).parents[3] / "sdk" / "README.md"
VERSION = {
    "id": "v", "dataset": "demo", "number": 4, "digest": "b3:0", "sample_count": 3, "byte_count": 30, "parent": None,
    "created_at": NOW, "job_id": None, "schema": DATASET["schema"], "quarantined_count": 0,
}  # fmt: skip


@pytest.fixture
def catalog(training: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server that knows the datasets of the examples; what is read comes from a real store."""
    monkeypatch.setattr(_jobs, "_FIRST_POLL_SECONDS", 0.001)
    api = training.api
    for name in ("demo", "patches"):
        api.answer("POST", f"/datasets/{name}/ingests", JOB, 202)
        api.answer("POST", f"/datasets/{name}/splits", SPLIT, 201)
        api.answer("GET", f"/datasets/{name}/versions/latest", VERSION)
        api.answer("GET", f"/datasets/{name}/versions/4/samples", {"items": [], "next_cursor": None, "total": 0})
    api.answer("GET", "/jobs/job-1", JOB | {"state": "succeeded", "result": {"sample_count": 3000}})
    with served(api) as address:
        monkeypatch.setenv("PENSTOCK_URL", address)
        monkeypatch.setenv("PENSTOCK_TOKEN", "pst_example")
        yield api


def modules_with_examples() -> list[str]:
    files = [path for path in PACKAGE.glob("*.py") if ">>>" in path.read_text()]
    return sorted(f"penstock.{path.stem}".removesuffix(".__init__") for path in files)


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_in_docstrings_run(module: str, catalog: Any) -> None:
    globs = {"client": catalog.client()}
    failed, tried = doctest.testmod(importlib.import_module(module), extraglobs=globs)
    assert failed == 0
    assert tried > 0


def test_no_example_is_left_out() -> None:
    assert {"penstock", "penstock._client", "penstock._loader"} <= set(modules_with_examples())
    assert not [path.name for path in PACKAGE.rglob("*.py") if "doctest: +SKIP" in path.read_text()]


def test_the_readme_runs_from_top_to_bottom(catalog: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": torch.nn.Linear(1, 1)}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert names["images"].shape[1:] == (3, 8, 8)
    assert names["job"].state == "succeeded"
    names["loader"].close()
    names["client"].close()
    assert catalog.bodies("POST", "/datasets/patches/ingests")
