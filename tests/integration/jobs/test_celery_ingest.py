"""Whole ingests by Celery workers on PostgreSQL, Cassandra and Redis."""

import socket
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from fault.conftest import PICTURES
from fault.worker_processes import assert_whole, owner_pid, shard_in_work, shards, worker
from unit.jobs.stage import Stage, write_pictures

from penstock_server.domain.jobs.service import JobService
from penstock_server.jobs.celery_queue import CeleryQueue
from penstock_server.jobs.names import QUEUE
from penstock_workers.app import WorkerProcess
from penstock_workers.settings import WorkerSettings

END_SECONDS = 240


def test_ingest_is_published_and_a_second_one_adds_nothing(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    with worker(tmp_path, groups, concurrency=2) as process:
        first = stage.wait_for_end(stage.ingest(pictures), seconds=END_SECONDS)
        assert (first.state, first.error) == ("succeeded", None)
        assert first.result is not None
        assert (first.result.version, first.result.sample_count) == (1, PICTURES)
        assert_whole(stage, pictures, count=PICTURES)
        objects, samples = stage.stored_objects(), stage.sample_ids()
        second = stage.wait_for_end(stage.ingest(pictures), seconds=END_SECONDS)
        assert second.result == first.result
        assert (stage.stored_objects(), stage.sample_ids()) == (objects, samples)
        assert len({shard.fence for shard in shards(stage)}) == 1
        assert process.stop() == 0


def test_failed_and_quarantined_files_are_told(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    few = pictures.parent / f"few-{tmp_path.name}"
    write_pictures(few, 20)
    (few / "cat" / "text.png").write_text("no picture")
    with worker(tmp_path, groups, concurrency=1):
        told = stage.wait_for_end(stage.ingest(few), seconds=END_SECONDS)
        assert (told.state, [each.key for each in told.quarantined]) == ("succeeded", ["cat/text.png"])
        for number in range(9):
            (few / "cat" / f"text{number}.png").write_text("no picture")
        failed = stage.wait_for_end(stage.ingest(few), seconds=END_SECONDS)
    assert failed.error is not None
    assert (failed.state, failed.error.code) == ("failed", "ingest.too_many_bad")
    assert len(stage.versions()) == 1


def test_running_job_is_cancelled_and_publishes_nothing(
    stage: Stage, groups: dict[str, Any], tmp_path: Path, pictures: Path
) -> None:
    with worker(tmp_path, groups, concurrency=2, lease_seconds=4):
        job_id = stage.ingest(pictures)
        assert owner_pid(shard_in_work(stage)) > 0
        with stage.services.catalog.unit() as unit:
            JobService(unit, stage.services.queue, stage.services.bus).cancel(stage.actor, job_id)
        job = stage.wait_for_end(job_id, seconds=60)
    assert job.state == "cancelled"
    assert stage.versions() == []


def test_queue_counts_what_waits_and_says_when_it_is_away(stage: Stage, redis_url: str, pictures: Path) -> None:
    queue = stage.services.queue
    assert isinstance(queue, CeleryQueue)
    assert queue.health() is None
    assert queue.depth() == 0
    stage.ingest(pictures)
    assert queue.depth() == 1
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen(QUEUE) == 1


def test_sweeper_sends_a_lost_wake_up_again_and_piles_none_up(stage: Stage, redis_url: str, pictures: Path) -> None:
    queue = stage.services.queue
    assert isinstance(queue, CeleryQueue)
    stage.ingest(pictures)
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    process = WorkerProcess(stage.settings, WorkerSettings(sweep_seconds=0.1))
    try:
        stage.wait_until(lambda: queue.depth() == 1, seconds=30, what="the wake-up")
        time.sleep(2)
        assert queue.depth() == 1
    finally:
        process.close()


def test_queue_that_is_away_or_silent_never_fails_or_holds_the_caller() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        for port in (1, silent.getsockname()[1]):
            queue = CeleryQueue(f"redis://127.0.0.1:{port}/0")
            started = time.monotonic()
            queue.wake(uuid4())
            assert "does not answer" in str(queue.health())
            assert time.monotonic() - started < 20
            queue.close()
