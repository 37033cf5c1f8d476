"""What leases promise, as cases that run on every kind of catalog."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from uuid import UUID

import pytest
from sqlalchemy import select, update

from penstock.contract.codes import ErrorCode
from penstock_server.db import Catalog
from penstock_server.jobs.leases import Aside, Lease, LeaseLost, LeaseTable, ShardPlan, settle_cancelled
from penstock_server.models import Job, JobShard, Quarantined


class LeaseCases:
    """Needs a fixture `catalog`: migrated and empty."""

    @pytest.fixture
    def leases(self, catalog: Catalog) -> LeaseTable:
        return LeaseTable(catalog)

    @pytest.fixture
    def job_id(self, catalog: Catalog) -> UUID:
        with catalog.unit() as unit:
            job = Job(kind="ingest", state="queued", payload={}, progress={}, created_at=unit.now())
            unit.session.add(job)
        return job.id

    @pytest.fixture
    def planned(self, leases: LeaseTable, job_id: UUID) -> Callable[[int], UUID]:
        def plan(shards: int) -> UUID:
            lease = claimed(leases.claim("planner"))
            assert lease.phase == "plan"
            leases.complete_plan(lease, [ShardPlan({"n": n}, 10) for n in range(shards)])
            return job_id

        return plan

    def test_job_goes_through_plan_write_and_publish(self, leases: LeaseTable, catalog: Catalog, job_id: UUID) -> None:
        plan = claimed(leases.claim("a"))
        assert (plan.phase, plan.job_id, plan.fence, plan.attempt) == ("plan", job_id, 1, 1)
        leases.complete_plan(plan, [ShardPlan({}, 10), ShardPlan({}, 5)], aside=[Aside("x.txt", "no picture")])
        first, second = claimed(leases.claim("a")), claimed(leases.claim("b"))
        assert [first.ordinal, second.ordinal] == [0, 1]
        assert leases.claim("c") is None
        leases.complete_shard(first, {"done": 10})
        assert leases.claim("c") is None
        leases.complete_shard(second, {"done": 5}, aside=[Aside("y.png", "cut")])
        assert read(catalog, job_id).progress == {
            "done": 15, "total": 15, "phase": "publish", "unit": "samples", "listed": 16
        }  # fmt: skip
        publish = claimed(leases.claim("a"))
        assert (publish.phase, publish.fence, publish.attempt) == ("publish", 2, 1)
        with catalog.unit() as unit:
            assert {row.key for row in unit.session.scalars(select(Quarantined))} == {"x.txt", "y.png"}

    def test_expired_shard_is_taken_over_and_the_frozen_owner_changes_nothing(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        job_id = planned(1)
        frozen = claimed(leases.claim("frozen"))
        leases.report(frozen, 7)
        expire(catalog)
        taker = claimed(leases.claim("taker"))
        assert (taker.shard_id, taker.fence, taker.attempt) == (frozen.shard_id, frozen.fence + 1, 2)
        leases.complete_shard(taker, {"done": 10, "by": "taker"})
        before = snapshot(catalog)
        for call in (
            lambda: leases.heartbeat(frozen),
            lambda: leases.report(frozen, 9),
            lambda: leases.complete_shard(frozen, {"done": 10, "by": "frozen"}, aside=[Aside("z", "late")]),
            lambda: leases.release(frozen),
            lambda: leases.fail(frozen, ErrorCode.SERVER_INTERNAL, "late", aside=[Aside("z", "late")]),
        ):
            with pytest.raises(LeaseLost):
                call()
        assert snapshot(catalog) == before
        assert read(catalog, job_id).state == "running"

    def test_frozen_owner_loses_to_a_taker_that_is_still_at_work(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        planned(1)
        frozen = claimed(leases.claim("frozen"))
        expire(catalog)
        taker = claimed(leases.claim("taker"))
        with pytest.raises(LeaseLost):
            leases.complete_shard(frozen, {"done": 10})
        leases.complete_shard(taker, {"done": 10})

    def test_overdue_lease_that_nobody_took_still_counts(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        planned(1)
        late = claimed(leases.claim("late"))
        expire(catalog)
        leases.complete_shard(late, {"done": 10})
        assert claimed(leases.claim("late")).phase == "publish"

    def test_expired_planner_cannot_plan_after_a_take_over(
        self, leases: LeaseTable, catalog: Catalog, job_id: UUID
    ) -> None:
        frozen = claimed(leases.claim("frozen"))
        expire(catalog)
        taker = claimed(leases.claim("taker"))
        leases.complete_plan(taker, [ShardPlan({}, 1)])
        with pytest.raises(LeaseLost):
            leases.complete_plan(frozen, [ShardPlan({}, 1), ShardPlan({}, 1)])
        with catalog.unit() as unit:
            assert len(unit.session.scalars(select(JobShard)).all()) == 1

    def test_shard_that_kills_three_workers_fails_the_job(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        job_id = planned(2)
        for attempt in (1, 2, 3):
            assert claimed(leases.claim_shard("poisoned")).attempt == attempt
            expire(catalog)
        leases.claim("next")
        job = read(catalog, job_id)
        assert job.state == "failed"
        assert job.error is not None
        assert job.error["code"] == "server.internal"
        assert "part 1 ended its worker 3 times" in job.error["detail"]
        assert leases.claim("next") is None

    def test_plan_that_kills_three_workers_fails_the_job(
        self, leases: LeaseTable, catalog: Catalog, job_id: UUID
    ) -> None:
        for _ in range(3):
            claimed(leases.claim("poisoned"))
            expire(catalog)
        assert leases.claim("next") is None
        assert read(catalog, job_id).state == "failed"

    def test_failed_attempts_wait_and_run_out(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        planned(1)
        for attempt in (1, 2):
            lease = claimed(leases.claim("a"))
            assert lease.attempt == attempt
            assert leases.release(lease, wait_seconds=60, is_failed_attempt=True)
            assert leases.claim("a") is None
            expire(catalog)
        assert not leases.release(claimed(leases.claim("a")), wait_seconds=60, is_failed_attempt=True)

    def test_release_of_a_stopping_worker_costs_no_attempt(
        self, leases: LeaseTable, planned: Callable[[int], UUID]
    ) -> None:
        planned(1)
        leases.release(claimed(leases.claim("a")))
        assert claimed(leases.claim("b")).attempt == 1

    def test_failing_ends_the_job_and_stops_the_holders_of_other_shards(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        job_id = planned(3)
        bad, other = claimed(leases.claim("a")), claimed(leases.claim("b"))
        leases.fail(bad, ErrorCode.STORE_FULL, "no room", aside=[Aside("k", "r")])
        with pytest.raises(LeaseLost):
            leases.heartbeat(other)
        with pytest.raises(LeaseLost):
            leases.complete_shard(other, {"done": 10})
        assert leases.claim("c") is None
        assert read(catalog, job_id).error == {"code": "store.full", "detail": "no room"}

    def test_cancel_waits_for_the_holder_and_then_ends_the_job(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        job_id = planned(2)
        held = claimed(leases.claim("a"))
        assert leases.heartbeat(held) is False
        with catalog.unit() as unit:
            unit.session.get_one(Job, job_id).cancel_requested = True
            unit.session.flush()
            assert settle_cancelled(unit, job_id) is False
        assert leases.heartbeat(held) is True
        assert leases.claim("b") is None
        leases.release(held)
        leases.sweep()
        assert read(catalog, job_id).state == "cancelled"

    def test_cancel_of_a_job_whose_worker_died_is_settled_by_the_sweeper(
        self, leases: LeaseTable, catalog: Catalog, planned: Callable[[int], UUID]
    ) -> None:
        job_id = planned(1)
        claimed(leases.claim("dead"))
        with catalog.unit() as unit:
            unit.session.get_one(Job, job_id).cancel_requested = True
        assert leases.sweep() == []
        assert read(catalog, job_id).state == "running"
        expire(catalog)
        leases.sweep()
        assert read(catalog, job_id).state == "cancelled"

    def test_sweep_names_jobs_with_work_that_nobody_holds(
        self, leases: LeaseTable, catalog: Catalog, job_id: UUID
    ) -> None:
        assert leases.sweep() == [job_id]
        lease = claimed(leases.claim("a"))
        assert leases.sweep() == []
        leases.complete_plan(lease, [ShardPlan({}, 1)])
        assert leases.sweep() == [job_id]
        claimed(leases.claim("a"))
        assert leases.sweep() == []
        expire(catalog)
        assert leases.sweep() == [job_id]

    def test_workers_that_claim_at_once_get_different_shards(
        self, leases: LeaseTable, planned: Callable[[int], UUID]
    ) -> None:
        planned(20)
        barrier = Barrier(8)

        def work(number: int) -> list[int]:
            barrier.wait()
            taken: list[int] = []
            while (lease := leases.claim_shard(f"w{number}")) is not None:
                assert lease.ordinal is not None
                taken.append(lease.ordinal)
            return taken

        with ThreadPoolExecutor(8) as pool:
            taken = [ordinal for part in pool.map(work, range(8)) for ordinal in part]
        # A locked row is skipped, so a worker may go home early; what is left is claimed by the next look.
        while (lease := leases.claim_shard("last")) is not None:
            assert lease.ordinal is not None
            taken.append(lease.ordinal)
        assert Counter(taken) == Counter(range(20))

    def test_one_job_only_is_claimed_when_it_is_named(self, leases: LeaseTable, catalog: Catalog, job_id: UUID) -> None:
        with catalog.unit() as unit:
            other = Job(kind="ingest", state="queued", payload={}, progress={}, created_at=unit.now())
            unit.session.add(other)
        assert claimed(leases.claim("a", other.id)).job_id == other.id
        assert leases.claim("a", other.id) is None
        assert claimed(leases.claim("a")).job_id == job_id


def claimed(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


def read(catalog: Catalog, job_id: UUID) -> Job:
    with catalog.unit(is_read_only=True) as unit:
        return unit.session.get_one(Job, job_id)


def expire(catalog: Catalog) -> None:
    """Every lease and every waiting time is over."""
    past = datetime.now(UTC) - timedelta(hours=1)
    with catalog.unit() as unit:
        for table in (Job, JobShard):
            unit.session.execute(update(table).where(table.lease_until.is_not(None)).values(lease_until=past))


def snapshot(catalog: Catalog) -> list[tuple[object, ...]]:
    """All rows of jobs, shards and quarantine."""
    with catalog.unit(is_read_only=True) as unit:
        return [
            tuple(row)
            for table in (Job, JobShard, Quarantined)
            for row in unit.session.execute(select(*table.__table__.columns).order_by(table.id))
        ]
