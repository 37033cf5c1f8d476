"""Loaders report, the Live page reads. Nothing here is ever waited for by a training step."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.service import DatasetPlace
from penstock_server.domain.loaders.reading import SILENT_SECONDS, TOTAL_SAMPLES, read_run
from penstock_server.domain.loaders.repository import RunFilter, RunRepository
from penstock_server.domain.loaders.schemas import (
    LoaderCreate,
    LoaderCreated,
    LoaderEnd,
    PointsIn,
    RunDetail,
    RunPoint,
    RunRead,
    stored_point,
)
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.errors import NotFound
from penstock_server.events import EventBus
from penstock_server.models import LoaderRow, Run
from penstock_server.policy import Action, Actor, is_allowed

POINTS_KEPT = timedelta(hours=1)


class LoaderService:
    """Running loaders, grouped by run."""

    def __init__(self, unit: UnitOfWork, bus: EventBus) -> None:
        self._unit = unit
        self._bus = bus
        self._rows = RunRepository(unit.session)

    def register(self, actor: Actor, payload: LoaderCreate, place: DatasetPlace, *, page_url: str) -> LoaderCreated:
        """A loader starts: it joins its run, or begins it."""
        now = self._unit.now()
        run = self._rows.find_or_add(
            Run(
                name=payload.run,
                user_id=actor.user_id,
                project_id=place.project.id,
                dataset_id=place.dataset.id,
                version_number=payload.version,
                split=payload.split,
                subset=payload.subset,
                started_at=now,
                last_seen_at=now,
                state="running",
            )
        )
        run.state, run.last_seen_at, run.ended_at = "running", now, None
        self._replace_rank(run, payload, now)
        described = payload.model_dump(exclude={"run", "dataset", "version", "split", "subset"})
        loader = LoaderRow(run_id=run.id, state="running", started_at=now, last_seen_at=now, **described)
        self._rows.add_loader(loader)
        self._announce(run)
        return LoaderCreated(id=loader.id, run_id=run.id, live_url=f"{page_url}/live/{run.id}")

    def add_points(self, actor: Actor, loader_id: UUID, payload: PointsIn) -> None:
        """Keep what a loader has measured, on the server's clock."""
        loader, run = self._own(actor, loader_id)
        now = self._unit.now()
        ordered = sorted(payload.points, key=lambda point: point.at)
        # The newest point is now, whatever the loader's clock says; the others keep their distance to it.
        aged = [(ordered[-1].at - point.at, point) for point in ordered]
        kept = [(now - age, stored_point(point, now - age)) for age, point in aged if age < POINTS_KEPT]
        self._rows.add_points(loader.id, kept)
        before = (loader.last_point or {}).get(TOTAL_SAMPLES, 0)
        total = before + sum(point.samples for point in ordered)
        loader.last_point = {**stored_point(ordered[-1], now), TOTAL_SAMPLES: total}
        loader.last_seen_at = run.last_seen_at = now
        if loader.state not in ("ended", "failed"):
            run.state, run.ended_at = "running", None
        self._announce(run, [RunPoint(loader_id=loader.id, **point) for _, point in kept])

    def end(self, actor: Actor, loader_id: UUID, payload: LoaderEnd) -> None:
        """A loader is closed; its run ends with its last loader."""
        loader, run = self._own(actor, loader_id)
        now = self._unit.now()
        loader.state, loader.message = payload.state, payload.message
        loader.last_seen_at = loader.ended_at = now
        run.last_seen_at = now
        self._unit.session.flush()
        states = {each.state for each in self._rows.loaders([run.id])[run.id]}
        if states <= {"ended", "failed"}:
            run.state, run.ended_at = "failed" if "failed" in states else "ended", now
        self._announce(run)

    def list(
        self, actor: Actor, request: PageRequest, *, state: str | None = None, since_minutes: float | None = None
    ) -> Page[RunRead]:
        """Runs that the actor may see, newest first."""
        scope = f"runs:{actor.user_id}:{state}:{since_minutes}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        now = self._unit.now()
        seen_after = None if since_minutes is None else now - timedelta(minutes=since_minutes)
        wanted = RunFilter(state, seen_after, now - timedelta(seconds=SILENT_SECONDS))
        rows = self._rows.page(cursor, request.limit + 1, wanted)
        page = page_of(rows, [(str(row.run.id),) for row in rows], request, scope=scope)
        visible = [row for row in page.items if is_allowed(actor, Action.RUN_READ, project_id=row.run.project_id)]
        loaders = self._rows.loaders([row.run.id for row in visible])
        items = [read_run(row, loaders[row.run.id], now) for row in visible]
        return Page[RunRead](items=items, next_cursor=page.next_cursor, prev_cursor=page.prev_cursor)

    def get(self, actor: Actor, run_id: UUID, *, minutes: float) -> RunDetail:
        """One run with its points of the last minutes."""
        row = self._rows.find(run_id)
        if row is None or not is_allowed(actor, Action.RUN_READ, project_id=row.run.project_id):
            raise NotFound(ErrorCode.LOADER_NOT_FOUND, f"there is no run {run_id}", context={"run_id": str(run_id)})
        now = self._unit.now()
        points = self._rows.points(run_id, now - timedelta(minutes=minutes))
        shown = [RunPoint(loader_id=point.loader_id, **point.point) for point in points]
        run = read_run(row, self._rows.loaders([run_id])[run_id], now)
        return RunDetail(**run.model_dump(), points=shown)

    def _own(self, actor: Actor, loader_id: UUID) -> tuple[LoaderRow, Run]:
        """A loader is told about by its own user only."""
        loader = self._rows.loader(loader_id)
        row = None if loader is None else self._rows.find(loader.run_id)
        if loader is None or row is None or row.run.user_id != actor.user_id:
            raise NotFound(
                ErrorCode.LOADER_NOT_FOUND,
                f"there is no loader {loader_id} of yours; register it again",
                context={"loader_id": str(loader_id)},
            )
        return loader, row.run

    def _replace_rank(self, run: Run, payload: LoaderCreate, now: datetime) -> None:
        """A rank that starts again as another process has left its old loader behind."""
        for loader in self._rows.loaders([run.id])[run.id]:
            is_same_process = (loader.host, loader.pid) == (payload.host, payload.pid)
            if loader.rank == payload.rank and loader.state == "running" and not is_same_process:
                loader.state, loader.message, loader.ended_at = "ended", "started again as another process", now

    def _announce(self, run: Run, points: Sequence[RunPoint] = ()) -> None:
        self._unit.session.flush()
        row = self._rows.find(run.id)
        if row is None:
            return
        read = read_run(row, self._rows.loaders([run.id])[run.id], self._unit.now())
        event = RunDetail(**read.model_dump(), points=list(points)).model_dump(mode="json")
        project_id = run.project_id
        self._unit.after_commit(lambda: self._bus.publish("runs", "run", project_id, event))


def forget_old_points(unit: UnitOfWork) -> None:
    """Points older than an hour go; called by every worker once a minute."""
    RunRepository(unit.session).forget_points(unit.now() - POINTS_KEPT)
