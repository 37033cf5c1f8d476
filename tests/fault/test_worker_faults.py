"""What may happen to workers in the middle of an ingest, on production parts. Leases are short here; see LEASE."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from fault.conftest import PICTURES
from fault.worker_processes import (
    assert_whole,
    owner_pid,
    seconds_until_taken_over,
    shard_in_work,
    worker,
)
from unit.jobs.lease_cases import snapshot
from unit.jobs.stage import Stage

from harness.postgres import PostgresServer
from harness.redis_server import RedisServer

LEASE = 4.0
# In use a lease has 20 s and a take-over 30; machines that run tests get three times that.
TAKE_OVER_SECONDS = 3 * LEASE * 1.5
END_SECONDS = 240


def test_killed_child_is_made_good(stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path) -> None:
    with worker(tmp_path, groups, lease_seconds=LEASE, concurrency=2):
        job_id = stage.ingest(pictures)
        shard = shard_in_work(stage)
        os.kill(owner_pid(shard), signal.SIGKILL)
        assert seconds_until_taken_over(stage, shard, seconds=TAKE_OVER_SECONDS) <= TAKE_OVER_SECONDS
        job = stage.wait_for_end(job_id, seconds=END_SECONDS)
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(stage, pictures, count=PICTURES)


def test_killed_worker_is_taken_over_by_another(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    with (
        worker(tmp_path, groups, lease_seconds=LEASE, concurrency=1) as first,
        worker(tmp_path, groups, lease_seconds=LEASE, concurrency=1) as second,
    ):
        job_id = stage.ingest(pictures)
        shard = shard_in_work(stage)
        is_first = os.getpgid(owner_pid(shard)) == first.pid
        (first if is_first else second).kill()
        seconds_until_taken_over(stage, shard, seconds=TAKE_OVER_SECONDS)
        job = stage.wait_for_end(job_id, seconds=END_SECONDS)
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(stage, pictures, count=PICTURES)


def test_frozen_child_is_taken_over_and_changes_nothing_when_it_wakes(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    with worker(tmp_path, groups, lease_seconds=LEASE, concurrency=2) as process:
        job_id = stage.ingest(pictures)
        shard = shard_in_work(stage)
        pid = owner_pid(shard)
        os.kill(pid, signal.SIGSTOP)
        try:
            seconds_until_taken_over(stage, shard, seconds=TAKE_OVER_SECONDS)
            job = stage.wait_for_end(job_id, seconds=END_SECONDS)
            assert (job.state, job.error) == ("succeeded", None)
            rows, objects, digest = snapshot(stage.services.catalog), stage.stored_objects(), stage.versions()[0].digest
        finally:
            os.kill(pid, signal.SIGCONT)
        stage.wait_until(lambda: "work.lease_lost" in process.output(), seconds=60, what="the frozen child's end")
        time.sleep(1)
    assert snapshot(stage.services.catalog) == rows
    assert stage.stored_objects() == objects
    assert [version.digest for version in stage.versions()] == [digest]
    assert_whole(stage, pictures, count=PICTURES)


def test_flushed_redis_loses_no_job(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path, redis_server: RedisServer, redis_url: str
) -> None:
    job_id = stage.ingest(pictures)
    # The wake-up is gone before any worker was there to hear it.
    redis_server.flush(redis_url)
    with worker(tmp_path, groups, lease_seconds=LEASE, concurrency=2):
        shard_in_work(stage)
        redis_server.flush(redis_url)
        job = stage.wait_for_end(job_id, seconds=END_SECONDS)
        assert (job.state, job.error) == ("succeeded", None)
        # The worker hears of the next job as well.
        again = stage.wait_for_end(stage.ingest(pictures), seconds=END_SECONDS)
    assert again.result == job.result
    assert_whole(stage, pictures, count=PICTURES)


def test_restarted_redis_loses_no_job(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path, redis_server: RedisServer
) -> None:
    with worker(tmp_path, groups, lease_seconds=LEASE, concurrency=2):
        job_id = stage.ingest(pictures)
        shard_in_work(stage)
        redis_server.kill()
        time.sleep(1)
        redis_server.restart()
        job = stage.wait_for_end(job_id, seconds=END_SECONDS)
    assert (job.state, job.error) == ("succeeded", None)
    assert_whole(stage, pictures, count=PICTURES)


def test_restarted_catalog_shows_no_half_of_a_version(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path, postgres: PostgresServer
) -> None:
    seen: set[tuple[str, int]] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            try:
                seen.update((version.state, version.sample_count) for version in stage.versions())
            except Exception:
                time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with worker(tmp_path, groups, lease_seconds=LEASE, concurrency=2):
            job_id = stage.ingest(pictures)
            shard_in_work(stage)
            postgres.kill()
            time.sleep(1)
            postgres.restart()
            job = stage.wait_for_end(job_id, seconds=END_SECONDS)
    finally:
        ended.set()
        watcher.join()
    assert (job.state, job.error) == ("succeeded", None)
    assert seen <= {("published", PICTURES)}
    assert_whole(stage, pictures, count=PICTURES)
