"""The embedded worker: a real process on SQLite and LMDB."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault.conftest import PICTURES
from fault.worker_processes import (
    assert_whole,
    owner_pid,
    seconds_until_taken_over,
    settings_of,
    shard_in_work,
    shards,
    worker,
)
from unit.jobs.stage import Stage, open_stage

from harness.soak import repetitions

LEASE = 3.0
TAKE_OVER_SECONDS = 3 * LEASE * 1.5


@pytest.fixture
def embedded(pictures: Path) -> dict[str, Any]:
    return {"ingest": {"allowed_roots": [str(pictures.parent)]}}


@pytest.fixture
def local(tmp_path: Path, embedded: dict[str, Any]) -> Iterator[Stage]:
    stage = open_stage(settings_of(tmp_path, embedded))
    yield stage
    stage.services.close()


@pytest.mark.parametrize("attempt", range(repetitions(1, 20)))
def test_killed_worker_is_made_good_by_the_next_one(
    local: Stage, attempt: int, embedded: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    job_id = local.ingest(pictures)
    with worker(tmp_path, embedded, number=1, lease_seconds=LEASE) as first:
        shard = shard_in_work(local)
        assert owner_pid(shard) == first.popen.pid
        first.kill()
    with worker(tmp_path, embedded, number=2, lease_seconds=LEASE) as second:
        seconds_until_taken_over(local, shard, seconds=TAKE_OVER_SECONDS + 60)
        job = local.wait_for_end(job_id, seconds=120)
        assert second.stop() == 0
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(local, pictures, count=PICTURES)


def test_two_workers_share_a_job(local: Stage, embedded: dict[str, Any], tmp_path: Path, pictures: Path) -> None:
    with worker(tmp_path, embedded, number=1), worker(tmp_path, embedded, number=2):
        job = local.wait_for_end(local.ingest(pictures), seconds=180)
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(local, pictures, count=PICTURES)


def test_stopped_worker_gives_its_shard_back(
    local: Stage, embedded: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    local.ingest(pictures)
    with worker(tmp_path, embedded) as process:
        shard = shard_in_work(local)
        assert process.stop() == 0
    given_back = next(each for each in shards(local) if each.id == shard.id)
    assert (given_back.state, given_back.lease_owner) in {("pending", None), ("done", None)}


def test_worker_ends_with_its_parent(local: Stage, tmp_path: Path) -> None:
    """A parent that is killed has no time to tell its worker."""
    command = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'penstock_workers.local', '--parent', str(os.getpid())])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_DATA_FOLDER": str(local.settings.data_folder), "PENSTOCK_LOG__LEVEL": "info"}
    with (tmp_path / "log").open("wb") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
        assert parent.stdout is not None
        with parent.stdout as lines:
            child_pid = int(lines.readline())
    try:
        log_file = tmp_path / "log"
        local.wait_until(lambda: "worker.started" in log_file.read_text(), seconds=120, what="the worker's start")
    finally:
        parent.kill()
        parent.wait()
    local.wait_until(lambda: not _is_running(child_pid), seconds=30, what="the worker's end")


def test_wrong_settings_are_told_without_a_traceback(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_WORKER_LEASE_SECONDS": "soon", "PENSTOCK_DATA_FOLDER": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock_workers.local"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "PENSTOCK_WORKER_LEASE_SECONDS" in done.stderr
    assert "Traceback" not in done.stderr


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
