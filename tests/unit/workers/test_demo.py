import csv
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock_workers import demo
from penstock_workers.demo import DEMO_SAMPLES, DEMO_SIDECAR, make_demo

# Of every file's name and bytes, in order: the demo has this on every machine, or its ids differ.
DIGEST = "2e4f5c95b3c56b786f7bbcc63843a7d24bc37320633bd8b32824a345b969638d"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    make_demo(folder)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / DEMO_SIDECAR).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_bytes_are_the_same_on_every_machine(folder: Path) -> None:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    assert digest.hexdigest() == DIGEST


def test_shape_is_as_told(rows: list[dict[str, str]]) -> None:
    assert len(rows) == DEMO_SAMPLES == 3_000
    assert len({row["patient"] for row in rows}) == 60
    assert len({row["site"] for row in rows}) == 3
    labels = Counter(row["tumor"] for row in rows)
    assert set(labels) == {"no", "yes"}
    assert 0.15 < labels["yes"] / len(rows) < 0.4
    # A patient is at one site and has one age, or a split by patient would tell them apart.
    assert len({(row["patient"], row["site"], row["age"]) for row in rows}) == 60
    assert len({row["note"] for row in rows}) > 1_000


def test_every_picture_is_another_one(folder: Path, rows: list[dict[str, str]]) -> None:
    assert len({hashlib.sha256((folder / row["image"]).read_bytes()).digest() for row in rows}) == DEMO_SAMPLES


def test_pictures_look_like_stained_tissue(folder: Path, rows: list[dict[str, str]]) -> None:
    means: dict[str, list[np.ndarray]] = {"no": [], "yes": []}
    covered: dict[str, list[float]] = {"no": [], "yes": []}
    for row in rows[::20]:
        with Image.open(folder / row["image"]) as image, Image.open(folder / row["mask"]) as mask:
            assert image.size == mask.size == (96, 96)
            pixels, inside = np.asarray(image.convert("RGB")), np.asarray(mask)
        assert set(np.unique(inside)) <= {0, 1}
        means[row["tumor"]].append(pixels.reshape(-1, 3).mean(axis=0))
        covered[row["tumor"]].append(float(inside.mean()))
        # Nuclei are dark and blue, what lies around them is bright and pink.
        nuclei, around = pixels[inside == 1].mean(axis=0), pixels[inside == 0].mean(axis=0)
        assert nuclei.sum() < around.sum() - 100
        assert nuclei[2] > nuclei[0]
        assert around[0] > around[1]
    red, green, blue = np.mean(means["no"] + means["yes"], axis=0)
    assert green < blue < red
    assert np.mean(covered["yes"]) > 2 * np.mean(covered["no"])


def test_counts_of_nuclei_tell_the_classes_apart(rows: list[dict[str, str]]) -> None:
    most = max(int(row["nuclei_count"]) for row in rows if row["tumor"] == "no")
    least = min(int(row["nuclei_count"]) for row in rows if row["tumor"] == "yes")
    assert most < least


def test_finished_folder_is_left_alone_and_an_unfinished_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_PATIENTS", 2)
    make_demo(tmp_path)
    before = (tmp_path / DEMO_SIDECAR).stat().st_mtime_ns
    (tmp_path / "patches" / "p01" / "p01-00.png").unlink()
    make_demo(tmp_path)
    assert (tmp_path / DEMO_SIDECAR).stat().st_mtime_ns == before
    (tmp_path / DEMO_SIDECAR).unlink()
    make_demo(tmp_path)
    assert (tmp_path / "patches" / "p01" / "p01-00.png").is_file()
