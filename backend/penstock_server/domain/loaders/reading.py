"""What rows of loaders say: states by the clock, rates from the last point, totals over ranks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock_server.domain.loaders.repository import RunRow
from penstock_server.domain.loaders.schemas import LoaderRead, RunRead, RunState, RunTotals
from penstock_server.models import LoaderRow, Run

SILENT_SECONDS = 10.0
# What a loader has delivered in all, kept in its last point beside the point's own members.
TOTAL_SAMPLES = "total_samples"


def read_run(row: RunRow, loaders: Sequence[LoaderRow], now: datetime) -> RunRead:
    """A run and its loaders as they are at `now`, the database's time."""
    shown = [_read_loader(loader, now) for loader in loaders]
    run = row.run
    return RunRead(
        id=run.id,
        name=run.name,
        dataset=row.dataset_slug,
        version=run.version_number,
        split=run.split,
        subset=run.subset,
        user=row.user_name,
        state=_state(run, now),
        started_at=run.started_at,
        last_seen_at=run.last_seen_at,
        ended_at=run.ended_at,
        world_size=max((loader.world_size for loader in loaders), default=1),
        loaders=shown,
        totals=_totals(shown),
    )


def _state(row: Run | LoaderRow, now: datetime) -> RunState:
    if row.state in ("ended", "failed"):
        return "ended" if row.state == "ended" else "failed"
    is_silent = now - row.last_seen_at > timedelta(seconds=SILENT_SECONDS)
    return "silent" if is_silent else "running"


def _read_loader(loader: LoaderRow, now: datetime) -> LoaderRead:
    state, point = _state(loader, now), loader.last_point or {}
    seconds = _number(point, "seconds")
    # A loader that says nothing has no rate; its counters and its place in the epoch stay true.
    pace = 1 / seconds if seconds > 0 and state == "running" else 0.0
    batches = _number(point, "batches")
    return LoaderRead(
        id=loader.id,
        rank=loader.rank,
        host=loader.host,
        pid=loader.pid,
        state=state,
        message=loader.message,
        samples_per_second=_number(point, "samples") * pace,
        bytes_per_second=_number(point, "bytes") * pace,
        wait_share=min(1.0, _number(point, "wait_seconds") * pace),
        wait_ms_per_batch=_number(point, "wait_seconds") * 1000 / batches if batches else 0.0,
        ready_batches=int(_number(point, "ready_batches")),
        window_bytes=int(_number(point, "window_bytes")),
        p50_ms=_number(point, "request_p50_ms"),
        p99_ms=_number(point, "request_p99_ms"),
        retries=int(_number(point, "retries")),
        samples=int(_number(point, TOTAL_SAMPLES)),
        epoch=int(_number(point, "epoch")),
        step=int(_number(point, "step")),
        steps=int(_number(point, "steps")),
        decode_share=min(1.0, _number(point, "decode_seconds") * pace),
    )


def _totals(loaders: Sequence[LoaderRead]) -> RunTotals:
    live = [loader for loader in loaders if loader.state == "running"]
    epoch = max((loader.epoch for loader in loaders), default=0)
    in_epoch = [loader for loader in loaders if loader.epoch == epoch]
    steps = sum(loader.steps for loader in in_epoch)
    return RunTotals(
        samples_per_second=sum(loader.samples_per_second for loader in live),
        bytes_per_second=sum(loader.bytes_per_second for loader in live),
        wait_share=sum(loader.wait_share for loader in live) / len(live) if live else 0.0,
        samples=sum(loader.samples for loader in loaders),
        epoch=epoch,
        epoch_share=min(1.0, sum(loader.step for loader in in_epoch) / steps) if steps else 0.0,
    )


def _number(point: dict[str, Any], name: str) -> float:
    value = point.get(name, 0)
    return value if isinstance(value, int | float) else 0.0
