"""E2, damaged file: a clear error or the right bytes, never a crash or wrong bytes, and writing makes nothing worse."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fault.embedded import examiner
from fault.embedded.objects import DATASET, fields_of, id_of, open_lmdb

from harness.run import ROOT
from harness.soak import repetitions
from penstock._errors import SampleCorrupt, StoreUnavailable

DAMAGES = repetitions(52, 2_000)
# Each spends most of its time on the way between the threads of a process.
EXAMINERS = 8
# LMDB's pages: the kind of those with entries, and where the end of the list of entries stands.
LEAF = 2
ENTRIES_END = 12


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return examiner.write_sound_file(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def findings(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    copies = tmp_path_factory.mktemp("copies")
    edges = [DAMAGES * part // EXAMINERS for part in range(EXAMINERS + 1)]
    with ThreadPoolExecutor(EXAMINERS) as pool:
        parts = pool.map(lambda part: examine(sound, copies, *part), pairwise(edges))
        return [finding for part in parts for finding in part]


def examine(sound: Path, copies: Path, first: int, end: int) -> list[dict[str, Any]]:
    argv = [sys.executable, examiner.__file__, str(sound), str(copies), str(first), str(end - first)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_damage_crashes_the_process_or_gives_wrong_bytes(findings: list[dict[str, Any]]) -> None:
    assert len(findings) == DAMAGES
    assert [finding for finding in findings if finding["status"] != 0 or finding["unexplained"]] == []


def test_damage_was_met_and_most_objects_outlive_it(findings: list[dict[str, Any]]) -> None:
    # Guards the test itself: damage that nothing ever meets would prove nothing.
    assert sum(finding["refused"] > 0 for finding in findings) > DAMAGES // 4
    assert sum(finding["right"] > 300 for finding in findings) > DAMAGES // 4
    assert sum(finding["wrote"] for finding in findings) > DAMAGES // 8


def test_single_flip_never_makes_an_object_look_absent(findings: list[dict[str, Any]]) -> None:
    flips = [finding for finding in findings if finding["what"].startswith("flip at") and "," not in finding["what"]]
    assert len(flips) >= DAMAGES // 3
    assert [finding for finding in flips if finding["absent"]] == []


def test_page_that_counts_too_few_entries_makes_no_object_look_absent(sound: Path, tmp_path: Path) -> None:
    content = sound.read_bytes()
    leaves = [page for page in range(0, len(content), examiner.PAGE) if content[page + 10] == LEAF]
    with_several = [page for page in leaves if content[page + ENTRIES_END] > 20]
    for page in with_several[:: len(with_several) // 6]:
        damaged = bytearray(content)
        damaged[page + ENTRIES_END] -= 2
        folder = tmp_path / str(page)
        examiner.lay_file(folder, damaged)
        assert examiner.examine(folder)["absent"] == 0


@pytest.mark.parametrize("place", [38, 39])
def test_map_that_no_machine_has_is_called_damaged(sound: Path, tmp_path: Path, place: int) -> None:
    content = bytearray(sound.read_bytes())
    content[place] ^= 1
    examiner.lay_file(tmp_path, content)
    with open_lmdb(tmp_path) as store, pytest.raises(SampleCorrupt, match="damaged"):
        store.read("samples", DATASET, [id_of(1)])


def test_undamaged_copy_is_used_without_a_word(sound: Path, tmp_path: Path) -> None:
    examiner.lay_file(tmp_path, sound.read_bytes())
    counts = examiner.examine(tmp_path)
    assert (counts["refused"], counts["absent"], counts["wrote"]) == (0, 0, 1)


@pytest.mark.parametrize("length", [1, 100, 4096, 8192])
def test_file_cut_to_almost_nothing_is_called_damaged(sound: Path, tmp_path: Path, length: int) -> None:
    file = examiner.lay_file(tmp_path, sound.read_bytes()[:length])
    with open_lmdb(tmp_path) as store:
        with pytest.raises(SampleCorrupt, match=r"damaged.*restore") as caught:
            store.read("samples", DATASET, [id_of(1)])
        assert str(file) in str(caught.value)
        with pytest.raises(StoreUnavailable, match="damaged"):
            store.scan("samples", DATASET)
        with pytest.raises(StoreUnavailable, match="damaged"):
            store.write("samples", DATASET, [(id_of(1), [("f", b"x")])])


def test_file_cut_off_while_it_is_open_is_an_error_and_no_bus_error(sound: Path, tmp_path: Path) -> None:
    file = examiner.lay_file(tmp_path, sound.read_bytes())
    with open_lmdb(tmp_path, is_read_only=True) as store:
        assert store.read("samples", DATASET, [id_of(4)]) == [fields_of(4)]
        os.truncate(file, 8192)
        with pytest.raises(SampleCorrupt, match="damaged"):
            store.read("samples", DATASET, [id_of(4)])
