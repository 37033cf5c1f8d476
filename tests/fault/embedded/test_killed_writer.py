"""E1: `kill -9` of the writer, again and again, while four reader processes run."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault.embedded import lives
from fault.embedded.objects import DATASET, fields_of, id_of, open_lmdb

from harness.run import ROOT
from harness.soak import repetitions

KILLS = repetitions(12, 100)
READERS = 4


def start(*arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, lives.__file__, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.Popen(
        argv, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture
def progress(tmp_path: Path) -> Path:
    """A file with the number of the last object that was acknowledged."""
    file = tmp_path / "progress"
    file.write_text("")
    return file


@pytest.fixture
def readers(tmp_path: Path, progress: Path) -> Iterator[list[subprocess.Popen[str]]]:
    (tmp_path / "store").mkdir()
    started = [start("reader", tmp_path / "store", progress, seed) for seed in range(READERS)]
    yield started
    for reader in started:
        reader.kill()
        reader.communicate()


def note(progress: Path, number: int) -> None:
    """At once whole: a reader looks at it at any moment."""
    new = progress.with_suffix(".new")
    new.write_text(str(number))
    new.rename(progress)


@pytest.mark.timeout(1800)
def test_killed_writer_loses_nothing_and_no_reader_notices(
    tmp_path: Path, progress: Path, readers: list[subprocess.Popen[str]]
) -> None:
    generator = random.Random(7)
    last = -1
    for _ in range(KILLS):
        writer = start("writer", tmp_path / "store", last + 1)
        assert writer.stdout is not None
        for _ in range(generator.randrange(1, 12)):
            last = int(writer.stdout.readline())
            note(progress, last)
        writer.kill()
        rest, errors = writer.communicate()
        assert errors == ""
        last = max([last, *map(int, rest.split())])
        note(progress, last)
        dead = [reader for reader in readers if reader.poll() is not None]
        assert not dead, dead[0].communicate()[1]
    for reader in readers:
        output, errors = reader.communicate(input="\n", timeout=60)
        assert reader.returncode == 0, errors
        assert int(output) > KILLS
    with open_lmdb(tmp_path / "store", is_read_only=True) as store:
        ids = [id_of(number) for number in range(last + 1)]
        assert store.read("samples", DATASET, ids) == [fields_of(number) for number in range(last + 1)]
        beyond = set(store.scan("samples", DATASET)) - set(ids)
        # The last transaction of a killed writer may be there, whole; it was never acknowledged.
        assert beyond <= {id_of(number) for number in range(last + 1, last + 1 + lives.AT_ONCE)}
