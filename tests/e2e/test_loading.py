"""The SDK and the command line against a running Penstock, embedded and on production parts."""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import penstock
from harness.deployments import Deployment
from harness.penstock_processes import PENSTOCK
from harness.run import ROOT

DEMO_SAMPLES = 3_000


@pytest.fixture
def client(deployment: Deployment) -> Iterator[penstock.Client]:
    with deployment.client() as client:
        yield client


def catalog_rows(client: penstock.Client) -> dict[str, dict[str, Any]]:
    """What the catalog says of each sample, by id: the loader's labels are checked against it."""
    return {row["id"]: row for row in client.dataset("demo").samples().to_pylist()}


def run_penstock(deployment: Deployment, *arguments: str, expected_code: int = 0) -> str:
    ended = subprocess.run(
        [str(PENSTOCK), *arguments], env=deployment.environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == expected_code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout if expected_code == 0 else ended.stderr


def test_every_sample_of_all_subsets_comes_exactly_once(client: penstock.Client) -> None:
    seen: Counter[str] = Counter()
    for subset in ("train", "val", "test"):
        with client.loader(
            "demo", split=subset, batch_size=64, shuffle=True, output="numpy", fields=["mask"], decode=None
        ) as loader:
            batches = list(loader)
            assert len(batches) == len(loader)
            seen.update(sample_id for batch in batches for sample_id in batch.id_strings())
    assert len(seen) == DEMO_SAMPLES
    assert set(seen.values()) == {1}
    assert set(seen) == set(catalog_rows(client))


def test_pictures_masks_and_labels_belong_together(client: penstock.Client, deployment: Deployment) -> None:
    rows = catalog_rows(client)
    folder = Path(deployment.settings["PENSTOCK_DATA_FOLDER"])
    with client.loader("demo", split="val", batch_size=50, shuffle=True, output="numpy") as loader:
        names = loader.categories["tumor"]
        for batch in loader:
            assert batch["image"].shape[1:] == (3, 96, 96)
            for number, sample_id in enumerate(batch.id_strings()):
                row = rows[sample_id]
                assert names[batch["tumor"][number]] == row["tumor"]
                source = folder / row["source"] / row["key"]
                expected = np.asarray(Image.open(source).convert("RGB")).transpose(2, 0, 1)
                assert np.array_equal(batch["image"][number], expected), row["key"]
                assert batch["mask"][number].shape == (96, 96)


def test_no_patient_is_on_two_sides(client: penstock.Client) -> None:
    patients: dict[str, set[int]] = {}
    for subset in ("train", "val", "test"):
        with client.loader(
            "demo", split=f"by-patient/{subset}", batch_size=200, output="numpy", fields=["mask"], decode=None
        ) as loader:
            patients[subset] = {int(code) for batch in loader for code in batch["patient"]}
    assert sum(len(codes) for codes in patients.values()) == len(set.union(*patients.values())) == 60


def test_two_epochs_have_other_orders_and_the_same_samples(client: penstock.Client) -> None:
    with client.loader(
        "demo", split="test", batch_size=32, shuffle=True, in_order=True, output="numpy", fields=["mask"], decode=None
    ) as loader:
        first = [sample_id for batch in loader for sample_id in batch.id_strings()]
        second = [sample_id for batch in loader for sample_id in batch.id_strings()]
    assert first != second
    assert sorted(first) == sorted(second)


def test_ranks_share_the_subset_without_overlap(client: penstock.Client) -> None:
    seen: Counter[str] = Counter()
    lengths = set()
    for rank in range(3):
        with client.loader(
            "demo",
            split="test",
            batch_size=16,
            shuffle=True,
            output="numpy",
            fields=["mask"],
            decode=None,
            rank=rank,
            world_size=3,
        ) as loader:
            lengths.add(len(loader))
            for batch in loader:
                ids = batch.id_strings()
                seen.update(ids[number] for number in np.flatnonzero(batch["valid"]))
    assert len(lengths) == 1
    assert set(seen.values()) == {1}
    assert len(seen) == client.resolve("demo", split="test").subset.count


def test_torch_batches_are_tensors_that_may_be_written_to(client: penstock.Client) -> None:
    with client.loader("demo", split="test", batch_size=16) as loader:
        batch = next(iter(loader))
    assert isinstance(batch["image"], torch.Tensor)
    assert batch["image"].dtype == torch.uint8
    batch["image"].add_(1)
    assert batch["tumor"].dtype == torch.int64


def readme_snippet(words: str) -> str:
    """The example of the README with these words."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if words in block)


def test_readme_snippet_runs_and_says_where_it_can_be_watched(deployment: Deployment) -> None:
    snippet = readme_snippet('loader("demo"')
    assert len(snippet.strip().splitlines()) == 4
    ended = subprocess.run(
        [sys.executable, "-c", snippet], env=deployment.environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert "(64, 3, 96, 96)" in ended.stdout
    assert f"{deployment.url}/live" in ended.stderr


def test_readme_snippet_for_own_pictures_runs(deployment: Deployment, client: penstock.Client) -> None:
    folder = Path(deployment.settings["PENSTOCK_DATA_FOLDER"]).parent / "slides"
    folder.mkdir()
    lines = ["image,tumor,patient"]
    for number in range(60):
        pixels = np.full((16, 16, 3), number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{'yes' if number % 2 else 'no'},p{number // 3}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    snippet = readme_snippet('create_dataset("patches")').replace("/data/slides", str(folder))
    ended = subprocess.run(
        [sys.executable, "-c", snippet], env=deployment.environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    counts = [
        client.resolve("patches", split=f"by-patient/{subset}").subset.count for subset in ("train", "val", "test")
    ]
    assert sum(counts) == 60
    assert all(counts)


def test_finished_run_is_in_the_list_of_runs(client: penstock.Client, deployment: Deployment) -> None:
    with client.loader("demo", split="test", batch_size=16, output="numpy", run="e2e-listed") as loader:
        assert sum(1 for _ in loader) == len(loader)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = client._transport.get("/runs")  # the SDK has no call for it: the page is its user
        found = [run for run in answer["items"] if run["name"] == "e2e-listed"]
        if found and found[0]["state"] == "ended":
            return
        time.sleep(0.5)
    raise AssertionError(f"{answer}\n{deployment.tails()}")


def test_ingest_split_and_load_of_own_pictures_through_the_command_line(
    deployment: Deployment, client: penstock.Client
) -> None:
    folder = Path(deployment.settings["PENSTOCK_DATA_FOLDER"]).parent / "pictures"
    rng = np.random.default_rng(5)
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(20):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(folder / label / f"{number}.png")
    (folder / "cat" / "broken.png").write_bytes(b"this is no picture")

    job = json.loads(run_penstock(deployment, "ingest", "pets", str(folder), "--label", "label", "--json"))
    assert job["state"] == "succeeded"
    assert job["result"]["sample_count"] == 40
    assert job["result"]["quarantined_count"] == 1
    again = json.loads(run_penstock(deployment, "ingest", "pets", str(folder), "--label", "label", "--json"))
    assert again["result"]["version"] == job["result"]["version"]

    run_penstock(deployment, "splits", "create", "pets", "halves", "a=0.5", "b=0.5", "--json")
    with client.loader("pets", split="a", batch_size=8, output="numpy") as loader:
        assert sum(len(batch["ids"]) for batch in loader) == 20
        assert sorted(loader.categories["label"]) == ["cat", "dog"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["datasets", "show", "nothing-here"], 3, "nothing-here"),
        (["ingest", "pets", "/etc"], 2, "/etc"),
        (["splits", "show", "demo", "no-such-split"], 3, "no-such-split"),
    ],
)
def test_wrong_names_and_folders_get_a_clear_answer(
    deployment: Deployment, arguments: list[str], code: int, words: str
) -> None:
    assert words in run_penstock(deployment, *arguments, expected_code=code)


def test_unknown_subset_names_those_that_exist(client: penstock.Client) -> None:
    with pytest.raises(penstock.NotFound, match="train"):
        client.loader("demo", split="tran", output="numpy")
