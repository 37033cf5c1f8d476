"""The embedded worker: a real process on SQLite and LMDB."""

import re
import signal
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

from harness.penstock_processes import start_program
from harness.processes import ProcessIdentity
from harness.services import Services
from harness.soak import repetitions

LEASE = 3.0
TAKE_OVER_SECONDS = 3 * LEASE * 1.5


@pytest.fixture
def embedded(pictures: Path) -> dict[str, Any]:
    return {"ingest": {"allowed_roots": [str(pictures.parent)]}}


@pytest.fixture
def local(services: Services, tmp_path: Path, embedded: dict[str, Any]) -> Iterator[Stage]:
    del services  # only has to be there: a worker is a process of its run
    stage = open_stage(settings_of(tmp_path, embedded))
    yield stage
    stage.services.close()


@pytest.mark.parametrize("attempt", range(repetitions(1, 20)))
def test_killed_worker_is_made_good_by_the_next_one(
    local: Stage, attempt: int, embedded: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    job_id = local.ingest(pictures)
    with worker(tmp_path, embedded, lease_seconds=LEASE) as first:
        shard = shard_in_work(local)
        assert owner_pid(shard) == first.pid
        first.kill()
    with worker(tmp_path, embedded, lease_seconds=LEASE) as second:
        seconds_until_taken_over(local, shard, seconds=TAKE_OVER_SECONDS + 60)
        job = local.wait_for_end(job_id, seconds=120)
        assert second.stop() == 0
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(local, pictures, count=PICTURES)


def test_two_workers_share_a_job(local: Stage, embedded: dict[str, Any], tmp_path: Path, pictures: Path) -> None:
    with worker(tmp_path, embedded), worker(tmp_path, embedded):
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


def test_worker_ends_with_its_parent(local: Stage, services: Services) -> None:
    """A parent that is killed has no time to tell its worker."""
    command = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'penstock_workers.local', '--parent', str(os.getpid())])\n"
        "print('child', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    settings = {"PENSTOCK_DATA_FOLDER": str(local.settings.data_folder), "PENSTOCK_LOG__LEVEL": "info"}
    parent = start_program(services.run, "parent", [sys.executable, "-c", command], settings)
    child = ProcessIdentity.of(int(parent.wait_for(re.compile(r"child (\d+)\n"), seconds=60)[1]))
    assert child is not None
    parent.wait_for(re.compile("worker.started"), seconds=120)
    # The parent alone: the worker is of its group, and must not need the signal to end.
    parent.stop(with_signal=signal.SIGKILL)
    local.wait_until(lambda: not child.is_alive(), seconds=30, what="the worker's end")


def test_wrong_settings_are_told_without_a_traceback(services: Services, tmp_path: Path) -> None:
    settings = {"PENSTOCK_WORKER_LEASE_SECONDS": "soon", "PENSTOCK_DATA_FOLDER": str(tmp_path)}
    environment = services.run.environment(settings)
    done = subprocess.run(
        [sys.executable, "-m", "penstock_workers.local"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "PENSTOCK_WORKER_LEASE_SECONDS" in done.stderr
    assert "Traceback" not in done.stderr
