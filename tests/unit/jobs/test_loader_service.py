from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, update

from penstock.contract.ids import uuid7
from penstock.contract.telemetry import LoaderPoint
from penstock_server.db import Catalog
from penstock_server.domain.datasets.service import DatasetPlace
from penstock_server.domain.loaders.schemas import LoaderCreate, LoaderEnd, PointsIn, RunDetail, RunRead
from penstock_server.domain.loaders.service import LoaderService, forget_old_points
from penstock_server.domain.pages import PageRequest
from penstock_server.domain.projects.service import ProjectService
from penstock_server.domain.users.service import UserService
from penstock_server.errors import NotFound
from penstock_server.models import Dataset, LoaderPointRow, LoaderRow, Project, Run, User
from penstock_server.policy import Actor


@dataclass
class KeptEvents:
    """The bus as a list."""

    events: list[tuple[str, str, UUID, dict[str, Any]]] = field(default_factory=list)

    def publish(self, topic: str, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None:
        self.events.append((topic, kind, project_id, dict(payload)))


@dataclass
class Live:
    """The loaders' side of a server with one dataset."""

    catalog: Catalog
    actor: Actor
    project: Project
    dataset: Dataset
    bus: KeptEvents

    def register(self, *, rank: int = 0, actor: Actor | None = None, **changes: Any) -> tuple[UUID, UUID]:
        body = {
            "run": "resnet-a", "dataset": "patches", "version": 1, "split": "by-patient@1", "subset": "train",
            "rank": rank, "world_size": 2, "host": "gpu1", "pid": 100 + rank, "batch_size": 64,
            "sample_count": 1000, "sdk_version": "0.1.0", "output": "torch",
        }  # fmt: skip
        payload = LoaderCreate.model_validate(body | changes)
        with self.catalog.unit() as unit:
            place = DatasetPlace(self.dataset, self.project)
            made = self._service(unit).register(actor or self.actor, payload, place, page_url="http://127.0.0.1:1")
        assert made.live_url == f"http://127.0.0.1:1/live/{made.run_id}"
        return made.id, made.run_id

    def points(self, loader_id: UUID, *points: dict[str, Any], actor: Actor | None = None) -> None:
        with self.catalog.unit() as unit:
            payload = PointsIn.model_validate({"points": list(points)})
            self._service(unit).add_points(actor or self.actor, loader_id, payload)

    def end(self, loader_id: UUID, state: str = "ended", message: str | None = None) -> None:
        with self.catalog.unit() as unit:
            payload = LoaderEnd.model_validate({"state": state, "message": message})
            self._service(unit).end(self.actor, loader_id, payload)

    def run(self, run_id: UUID, *, minutes: float = 5) -> RunDetail:
        with self.catalog.unit(is_read_only=True) as unit:
            return self._service(unit).get(self.actor, run_id, minutes=minutes)

    def runs(self, **narrowed: Any) -> list[RunRead]:
        with self.catalog.unit(is_read_only=True) as unit:
            return self._service(unit).list(self.actor, PageRequest(), **narrowed).items

    def grow_older(self, seconds: float) -> None:
        """All that was seen was seen this much earlier."""
        with self.catalog.unit() as unit:
            rows = [*unit.session.scalars(select(Run)), *unit.session.scalars(select(LoaderRow))]
            for row in rows:
                row.last_seen_at -= timedelta(seconds=seconds)

    def _service(self, unit: Any) -> LoaderService:
        return LoaderService(unit, self.bus)  # type: ignore[arg-type]  # only publish is called


@pytest.fixture
def live(catalog: Catalog) -> Live:
    with catalog.unit() as unit:
        project = ProjectService(unit).ensure_default()
        user = UserService(unit).ensure_admin()
        now = unit.now()
        dataset = Dataset(
            id=uuid7(), project_id=project.id, slug="patches", schema={}, created_at=now, updated_at=now
        )  # fmt: skip
        unit.session.add(dataset)
    return Live(catalog, Actor(user.id, "admin"), project, dataset, KeptEvents())


def point(**changes: Any) -> dict[str, Any]:
    made = LoaderPoint(
        at=datetime.now(UTC), seconds=2.0, epoch=1, step=20, steps=80, samples=640, bytes=64_000, batches=10,
        wait_seconds=0.5, decode_seconds=0.2, ready_batches=3, window_bytes=1 << 20, inflight_bytes=4096,
        request_p50_ms=1.5, request_p99_ms=9.0, retries=1, errors=0,
    )  # fmt: skip
    return {**made.to_json(), **changes}


def test_loader_appears_with_its_rates(live: Live) -> None:
    loader_id, run_id = live.register()
    live.points(loader_id, point(samples=600), point())
    run = live.run(run_id)
    (loader,) = run.loaders
    assert (run.state, run.name, run.dataset, run.version, run.split, run.subset, run.user) == (
        "running", "resnet-a", "patches", 1, "by-patient@1", "train", "admin"
    )  # fmt: skip
    assert (loader.samples_per_second, loader.bytes_per_second) == (320.0, 32_000.0)
    assert (loader.wait_share, loader.wait_ms_per_batch, loader.decode_share) == (0.25, 50.0, 0.1)
    assert (loader.samples, loader.epoch, loader.step, loader.steps) == (1240, 1, 20, 80)
    assert run.totals.epoch_share == 0.25
    assert run.world_size == 2


def test_ranks_share_a_run_and_are_summed(live: Live) -> None:
    (first, run_id), (second, same) = live.register(rank=0), live.register(rank=1)
    assert run_id == same
    live.points(first, point())
    live.points(second, point(samples=320, wait_seconds=1.5))
    totals = live.run(run_id).totals
    assert (totals.samples_per_second, totals.wait_share, totals.samples) == (480.0, 0.5, 960)
    assert live.register(subset="val")[1] != run_id


def test_silence_and_its_end_go_by_the_catalogs_clock(live: Live) -> None:
    loader_id, run_id = live.register()
    live.points(loader_id, point())
    live.grow_older(9)
    assert live.run(run_id).state == "running"
    live.grow_older(2)
    run = live.run(run_id)
    assert (run.state, run.loaders[0].state, run.totals.samples_per_second) == ("silent", "silent", 0.0)
    assert [each.id for each in live.runs(state="silent")] == [run_id]
    assert live.runs(state="running") == []
    live.points(loader_id, point())
    assert [each.id for each in live.runs(state="running")] == [run_id]


def test_run_ends_with_its_last_loader(live: Live) -> None:
    (first, run_id), (second, _) = live.register(rank=0), live.register(rank=1)
    live.end(first)
    assert live.run(run_id).state == "running"
    live.end(second, "failed", "out of memory")
    run = live.run(run_id)
    assert run.state == "failed"
    assert run.ended_at is not None
    assert [loader.message for loader in run.loaders] == [None, "out of memory"]
    live.grow_older(60)
    assert live.run(run_id).state == "failed"
    assert [each.id for each in live.runs(state="failed")] == [run_id]
    assert live.runs(state="ended") == []


def test_run_that_starts_again_runs_again(live: Live) -> None:
    loader_id, run_id = live.register()
    live.end(loader_id)
    assert live.run(run_id).state == "ended"
    assert live.register(pid=999)[1] == run_id
    assert live.run(run_id).state == "running"


def test_rank_that_starts_again_replaces_its_dead_process(live: Live) -> None:
    live.register(pid=1)
    _, run_id = live.register(pid=2)
    assert [(each.pid, each.state) for each in live.run(run_id).loaders] == [(1, "ended"), (2, "running")]


def test_points_stand_on_the_servers_clock(live: Live) -> None:
    loader_id, run_id = live.register()
    wrong = datetime(2031, 1, 1, tzinfo=UTC)
    live.points(loader_id, *(point(at=(wrong + timedelta(seconds=2 * n)).isoformat()) for n in range(3)))
    points = live.run(run_id).points
    now = datetime.now(UTC)
    assert [round((points[-1].at - each.at).total_seconds()) for each in points] == [4, 2, 0]
    assert abs((now - points[-1].at).total_seconds()) < 30
    assert {each.loader_id for each in points} == {loader_id}


def test_points_of_any_time_are_taken(live: Live) -> None:
    loader_id, run_id = live.register()
    live.points(loader_id, point(at="0001-01-01T00:00:00Z"), point(at="9999-12-31T23:59:59Z"))
    assert len(live.run(run_id).points) == 1


def test_points_are_forgotten_after_an_hour(live: Live) -> None:
    loader_id, run_id = live.register()
    live.points(loader_id, point())
    live.points(loader_id, point())
    with live.catalog.unit() as unit:
        first = unit.session.scalars(select(LoaderPointRow).order_by(LoaderPointRow.at)).first()
        assert first is not None
        old = first.at - timedelta(minutes=61)
        unit.session.execute(update(LoaderPointRow).where(LoaderPointRow.at == first.at).values(at=old))
    with live.catalog.unit() as unit:
        forget_old_points(unit)
        assert len(unit.session.scalars(select(LoaderPointRow)).all()) == 1
    assert len(live.run(run_id).points) == 1


def test_loader_of_somebody_else_is_not_there(live: Live) -> None:
    loader_id, _ = live.register()
    with live.catalog.unit() as unit:
        other = User(id=uuid4(), name="other", role="member", created_at=unit.now())
        unit.session.add(other)
    with pytest.raises(NotFound):
        live.points(loader_id, point(), actor=Actor(other.id, "member"))
    with pytest.raises(NotFound):
        live.points(uuid4(), point())


def test_events_carry_the_run_and_the_new_points(live: Live) -> None:
    loader_id, run_id = live.register()
    live.points(loader_id, point())
    topic, kind, project_id, payload = live.bus.events[-1]
    assert (topic, kind, project_id) == ("runs", "run", live.project.id)
    event = RunDetail.model_validate(payload)
    assert event.id == run_id
    assert [each.samples for each in event.points] == [640]


def test_runs_are_listed_newest_first_in_pages(live: Live) -> None:
    ids = [live.register(run=f"run-{n}")[1] for n in range(5)]
    with live.catalog.unit(is_read_only=True) as unit:
        service = LoaderService(unit, live.bus)  # type: ignore[arg-type]
        first = service.list(live.actor, PageRequest(limit=2))
        second = service.list(live.actor, PageRequest(limit=2, cursor=first.next_cursor))
        back = service.list(live.actor, PageRequest(limit=2, cursor=second.prev_cursor))
    assert [run.id for run in [*first.items, *second.items]] == ids[:0:-1]
    assert [run.id for run in back.items] == [run.id for run in first.items]


def test_since_minutes_narrows(live: Live) -> None:
    live.register()
    live.grow_older(3600)
    assert live.runs(since_minutes=30) == []
    assert len(live.runs(since_minutes=90)) == 1
