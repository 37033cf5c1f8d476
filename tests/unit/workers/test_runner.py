import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from unit.jobs.lease_cases import expire
from unit.jobs.stage import Stage, write_pictures

from penstock.contract.codes import ErrorCode
from penstock_server.errors import DependencyUnavailable, InvalidInput
from penstock_server.jobs.leases import Aside, ShardPlan
from penstock_server.models import Event, Job, JobShard
from penstock_workers.heartbeat import Heartbeat
from penstock_workers.outcomes import Cancelled, Permanent, Stopping, Transient
from penstock_workers.runner import Runner, Work

Step = Callable[[Work], None]


class ScriptedTask:
    """A task whose steps do what the test says."""

    def __init__(self, *, plan: Step | None = None, write: Step | None = None) -> None:
        self._plan = plan
        self._write = write

    def plan(self, work: Work) -> None:
        if self._plan is not None:
            self._plan(work)
        work.leases.complete_plan(work.lease, [ShardPlan({}, 10)])

    def write(self, work: Work) -> None:
        if self._write is not None:
            self._write(work)
        work.leases.complete_shard(work.lease, {"done": 10})

    def publish(self, work: Work) -> None:
        with work.services.catalog.unit() as unit:
            job = work.leases.check_job(unit, work.lease)
            job.state, job.ended_at = "succeeded", unit.now()


@pytest.fixture
def job(stage: Stage, tmp_path: Path) -> Job:
    write_pictures(tmp_path / "animals", 1)
    job_id = stage.ingest(tmp_path / "animals")
    with stage.services.catalog.unit(is_read_only=True) as unit:
        return unit.session.get_one(Job, job_id)


def runner(stage: Stage, **steps: Step) -> Runner:
    return Runner(stage.services, {"ingest": ScriptedTask(**steps)}, lease_seconds=20)


def raising(error: Exception) -> Step:
    def step(_: Work) -> None:
        raise error

    return step


def test_steps_run_to_the_end(stage: Stage, job: Job) -> None:
    work = runner(stage)
    assert [work.run_one() for _ in range(4)] == [True, True, True, False]
    assert stage.job(job.id).state == "succeeded"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Permanent(ErrorCode.INGEST_TOO_MANY_BAD, "too many"), "ingest.too_many_bad"),
        (InvalidInput(ErrorCode.INGEST_FOLDER_EMPTY, "empty"), "ingest.folder_empty"),
        (DependencyUnavailable(ErrorCode.STORE_FULL, "no room"), "store.full"),
    ],
)
def test_what_trying_again_cannot_help_fails_at_once(stage: Stage, job: Job, error: Exception, code: str) -> None:
    work = runner(stage, write=raising(error))
    assert [work.run_one() for _ in range(3)] == [True, True, False]
    read = stage.job(job.id)
    assert read.state == "failed"
    assert read.error is not None
    assert (read.error.code, read.error.detail) == (code, str(error))


def test_files_put_aside_by_a_failing_step_are_shown(stage: Stage, job: Job) -> None:
    aside = [Aside("a.png", "cut")]
    runner(stage, plan=raising(Permanent(ErrorCode.INGEST_TOO_MANY_BAD, "x", aside=aside))).run_one()
    assert [(each.key, each.reason) for each in stage.job(job.id).quarantined] == [("a.png", "cut")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Transient(ErrorCode.STORE_UNAVAILABLE, "away"), "store.unavailable"),
        (DependencyUnavailable(ErrorCode.STORE_UNAVAILABLE, "away"), "store.unavailable"),
        (RuntimeError("a bug with a secret in it"), "server.internal"),
    ],
)
def test_what_may_pass_is_tried_three_times_with_a_wait(stage: Stage, job: Job, error: Exception, code: str) -> None:
    work = runner(stage, write=raising(error))
    assert work.run_one()
    for _ in range(3):
        assert work.run_one()
        assert not work.run_one()
        expire(stage.services.catalog)
    read = stage.job(job.id)
    assert read.state == "failed"
    assert read.error is not None
    assert read.error.code == code
    assert "secret" not in read.error.detail
    assert not work.run_one()


def test_passing_failure_is_made_good_by_the_next_attempt(stage: Stage, job: Job) -> None:
    runner(stage).run_one()
    runner(stage, write=raising(Transient(ErrorCode.STORE_UNAVAILABLE, "away"))).run_one()
    expire(stage.services.catalog)
    work = runner(stage)
    while work.run_one():
        pass
    assert stage.job(job.id).state == "succeeded"


def test_worker_that_is_stopped_gives_its_work_back_at_once(stage: Stage, job: Job) -> None:
    stopping = threading.Event()

    def stop(work: Work) -> None:
        stopping.set()
        work.heartbeat.check()

    stopped = Runner(stage.services, {"ingest": ScriptedTask(write=stop)}, lease_seconds=20, stopping=stopping)
    assert stopped.run_one()
    assert stopped.run_one()
    other = runner(stage)
    assert other.run_one()
    assert other.run_one()
    assert stage.job(job.id).state == "succeeded"


def test_lost_lease_is_found_by_the_heartbeat_and_records_nothing(stage: Stage, job: Job) -> None:
    def freeze(work: Work) -> None:
        expire(stage.services.catalog)
        taker = runner(stage)
        while taker.run_one(job.id):
            pass
        frozen.wait(10)
        work.heartbeat.check()

    frozen = threading.Event()
    work = Runner(stage.services, {"ingest": ScriptedTask(write=freeze)}, lease_seconds=1)
    assert work.run_one()
    timer = threading.Timer(1.5, frozen.set)
    timer.start()
    assert work.run_one()
    timer.join()
    read = stage.job(job.id)
    assert (read.state, read.error) == ("succeeded", None)


def test_heartbeat_tells_of_cancel_loss_and_stop(stage: Stage, job: Job) -> None:
    leases = runner(stage).leases
    lease = leases.claim("a")
    assert lease is not None
    quick = type(lease)(**{name: getattr(lease, name) for name in lease.__slots__} | {"seconds": 0.2})
    stopping = threading.Event()
    with Heartbeat(leases, quick, stopping=stopping) as heartbeat:
        heartbeat.check()
        stopping.set()
        with pytest.raises(Stopping):
            heartbeat.check()
        with stage.services.catalog.unit() as unit:
            unit.session.get_one(Job, job.id).cancel_requested = True
        stage.wait_until(lambda: _raises(heartbeat, Cancelled), seconds=5, what="the cancel")


def test_catalog_away_for_a_moment_costs_nothing(stage: Stage, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def write(work: Work) -> None:
        def flaky() -> None:
            calls.append(1)
            if len(calls) < 3:
                with work.services.catalog.unit() as unit:
                    unit.session.execute(text("SELECT * FROM not_there"))
            work.leases.complete_shard(work.lease, {"done": 10})

        work.patiently(flaky)

    class Task(ScriptedTask):
        def write(self, work: Work) -> None:
            write(work)

    monkeypatch.setattr("penstock_workers.runner.CATALOG_PATIENCE_SECONDS", 5.0)
    work = Runner(stage.services, {"ingest": Task()}, lease_seconds=20)
    while work.run_one():
        pass
    assert len(calls) == 3
    assert stage.job(job.id).state == "succeeded"


def test_progress_is_told_at_most_four_times_a_second(stage: Stage, job: Job) -> None:
    def write(work: Work) -> None:
        for done in range(200):
            work.report(done % 10)

    work = runner(stage, write=write)
    work.run_one()
    before = _events(stage)
    work.run_one()
    # One when it was claimed, one when it was done, and what fits into the time it took.
    assert len(_events(stage)) - len(before) <= 2 + 4
    with stage.services.catalog.unit(is_read_only=True) as unit:
        shard = unit.session.scalars(select(JobShard)).one()
    assert shard.result == {"done": 10}


def test_events_carry_the_job_as_the_api_shows_it(stage: Stage, job: Job) -> None:
    work = runner(stage)
    while work.run_one():
        pass
    last = _events(stage)[-1]
    assert (last.topic, last.kind, last.project_id) == ("jobs", "job", stage.project_id)
    assert last.payload == stage.job(job.id).model_dump(mode="json")
    phases = [event.payload["progress"]["phase"] for event in _events(stage)]
    assert phases == sorted(phases, key=["plan", "write", "publish"].index)


def _events(stage: Stage) -> list[Event]:
    with stage.services.catalog.unit(is_read_only=True) as unit:
        return list(unit.session.scalars(select(Event).where(Event.topic == "jobs").order_by(Event.id)))


def _raises(heartbeat: Any, kind: type[Exception]) -> bool:
    try:
        heartbeat.check()
    except kind:
        return True
    except Stopping:
        return False
    return False
