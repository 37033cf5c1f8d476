"""`penstock up` and its one worker: a worker that is frozen, or killed, is replaced, and its shard taken over."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fault.conftest import PICTURES
from fault.worker_processes import owner_pid, seconds_until_taken_over, shard_in_work
from unit.jobs.stage import Stage, open_stage

from harness.penstock_processes import Server, folder_settings, start_server
from harness.processes import ProcessIdentity
from harness.services import Services
from penstock_server.settings import Settings

# The promise is 30 s; a machine that runs other tests at the same time gets twice that.
TAKE_OVER_SECONDS = 60


@pytest.fixture
def stage(tmp_path: Path, pictures: Path) -> Iterator[Stage]:
    """The catalog and the store of the server, seen from beside it."""
    roots = {"allowed_roots": [str(pictures.parent)]}
    stage = open_stage(Settings(data_folder=tmp_path / "data", state_folder=tmp_path / "state", ingest=roots))
    yield stage
    stage.services.close()


@pytest.fixture
def server(services: Services, stage: Stage, tmp_path: Path, pictures: Path) -> Iterator[Server]:
    roots = json.dumps([str(pictures.parent)])
    server = start_server(services.run, folder_settings(tmp_path, PENSTOCK_INGEST__ALLOWED_ROOTS=roots))
    yield server
    server.process.stop()


# One for all questions: to make a client costs more than to answer.
CLIENT = httpx.Client(timeout=30, headers={"Connection": "close"})


def queue_check(server: Server) -> tuple[int, bool]:
    answer = CLIENT.get(f"{server.url}/readyz")
    return answer.status_code, answer.json()["checks"]["queue"]["ok"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_worker_that_is_lost_is_replaced_and_its_shard_taken_over(
    stage: Stage, server: Server, pictures: Path, fault: signal.Signals
) -> None:
    stage.wait_until(lambda: queue_check(server) == (200, True), seconds=120, what="a server that is ready")
    job_id = stage.ingest(pictures)
    shard = shard_in_work(stage)
    lost = ProcessIdentity.of(owner_pid(shard))
    assert lost is not None
    os.kill(lost.pid, fault)

    stage.wait_until(lambda: queue_check(server) == (503, False), seconds=30, what="a server that is not ready")
    seconds = seconds_until_taken_over(stage, shard, seconds=TAKE_OVER_SECONDS)
    assert seconds < TAKE_OVER_SECONDS
    assert not lost.is_alive()
    job = stage.wait_for_end(job_id, seconds=180)

    assert (job.state, job.error) == ("succeeded", None)
    assert [version.sample_count for version in stage.versions()] == [PICTURES]
    assert queue_check(server) == (200, True)


@pytest.mark.timeout(300)
def test_frozen_server_that_wakes_up_keeps_its_worker(stage: Stage, server: Server) -> None:
    """Ctrl-Z in the terminal, and `fg` a while later: the worker's signs have waited in the pipe."""

    def is_ready() -> bool:
        return queue_check(server) == (200, True)

    stage.wait_until(is_ready, seconds=120, what="a server that is ready")
    (worker,) = server.children()
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(13)
    os.kill(server.process.pid, signal.SIGCONT)
    time.sleep(3)

    assert server.children() == [worker]
    assert is_ready()
