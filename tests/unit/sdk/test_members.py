import os
import uuid
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from penstock import _errors as errors
from penstock._members import Members, open_members
from penstock._models import LoaderPlan
from penstock._reading import read

PART_URL = f"/api/v1/datasets/demo/members/{uuid.UUID(int=0)}"


def opened(training: Any, **changes: Any) -> Members:
    return open_members(read(LoaderPlan, training.plan(**changes)), training.api.client()._transport)


def cached_files() -> list[Path]:
    return sorted((Path(os.environ["PENSTOCK_CACHE_FOLDER"]) / "members").iterdir())


def downloads(training: Any) -> int:
    return sum("/members/" in request.url.path for request in training.api.requests)


def test_parts_are_downloaded_once(training: Any) -> None:
    assert len(opened(training)) == 101
    assert downloads(training) == 2
    training.api.is_down = True
    assert len(opened(training)) == 101


def test_cache_is_private_and_holds_no_leftovers(training: Any) -> None:
    opened(training)
    files = cached_files()
    assert [file.suffix for file in files] == [".arrow", ".arrow"]
    assert files[0].parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_open_cache_folder_is_closed_to_others(training: Any) -> None:
    folder = Path(os.environ["PENSTOCK_CACHE_FOLDER"]) / "members"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    opened(training)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "other file"])
def test_damaged_cache_is_fetched_again(training: Any, damage: str) -> None:
    opened(training)
    path = cached_files()[0]
    data = bytearray(path.read_bytes())
    middle = data.find(training.sample_ids[30].bytes)
    middle = middle if middle >= 0 else data.find(training.sample_ids[80].bytes)
    data[middle] ^= 1
    changed = {"truncated": data[: len(data) // 2], "empty": b"", "flipped": data, "other file": b"hello" * 100}[damage]
    path.unlink()
    path.write_bytes(bytes(changed))
    members = opened(training)
    assert downloads(training) == 3
    first = bytes(members.native_parts(["image"])[0][0])
    assert first == b"".join(sample_id.bytes for sample_id in training.sample_ids[:60])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "wrong rows", "html"])
def test_damaged_download_is_refused_and_not_kept(training: Any, damage: str) -> None:
    good = training.parts[0]
    flipped = bytearray(good)
    flipped[good.find(training.sample_ids[30].bytes)] ^= 1
    bad = {"truncated": good[:-200], "flipped": bytes(flipped), "wrong rows": training.parts[1], "html": b"<html>"}[
        damage
    ]
    training.api.routes["GET", PART_URL] = lambda request: httpx.Response(200, content=bad)
    with pytest.raises(errors.TransportError, match="came damaged"):
        opened(training)
    assert cached_files() == []


def test_interrupted_download_leaves_nothing(training: Any) -> None:
    training.api.routes["GET", PART_URL] = lambda request: httpx.Response(404, json={"code": "x", "detail": "gone"})
    with pytest.raises(errors.NotFound):
        opened(training)
    assert cached_files() == []


def test_unusable_cache_folder_names_the_setting(
    training: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE_FOLDER", str(file))
    with pytest.raises(errors.ConfigError, match="PENSTOCK_CACHE_FOLDER"):
        opened(training)


def test_count_of_the_split_must_agree(training: Any) -> None:
    with pytest.raises(errors.TransportError, match="101 members, the split says 99"):
        opened(training, subset={"name": "train", "count": 99, "digest": "x"})


def test_empty_subset_is_refused(training: Any) -> None:
    with pytest.raises(errors.ConfigError, match="no samples"):
        opened(training, parts=[], subset={"name": "train", "count": 0, "digest": "x"})


def test_plan_with_a_strange_digest_reaches_no_path(training: Any) -> None:
    part = training.plan()["parts"][0] | {"digest": "../../x"}
    with pytest.raises(errors.TransportError, match="no digest"):
        opened(training, parts=[part])


def test_gather_pairs_values_with_positions_over_parts(training: Any) -> None:
    members = opened(training)
    positions = np.array([100, 0, 59, 60, 3, 3], np.uint64)
    rows = positions.astype(np.int64)
    values = {column.name: members.gather(column, positions) for column in members.header.columns}
    assert np.array_equal(values["age"], rows)
    assert np.array_equal(values["tumor"], rows % 4 - 1)
    assert np.asarray(values["tumor"]).dtype == np.int64
    assert np.array_equal(values["weight"], rows / 2)
    assert np.array_equal(values["flag"], rows % 3 - 1)
    assert np.array_equal(values["findings"], np.eye(10, dtype=np.uint8)[rows % 10])
    assert values["note"] == [f"note {row}" for row in rows]


def test_native_parts_are_views_of_the_file(training: Any) -> None:
    members = opened(training)
    ids_buffer, fields = members.native_parts(["mask"])[1]
    assert bytes(ids_buffer) == b"".join(sample_id.bytes for sample_id in training.sample_ids[60:])
    objects, sizes, _ = fields[0]
    assert bytes(objects) == b"".join(object_id.bytes for object_id in training.object_ids[60:])
    assert np.frombuffer(bytes(sizes), np.uint64).tolist() == [
        len(payload["mask"]) for payload in training.payloads[60:]
    ]
