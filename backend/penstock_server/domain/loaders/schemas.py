"""Loaders, their runs and their points, as they report them and as the Live page shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from penstock.contract.names import SLUG_PATTERN
from penstock_server.domain.datasets.schemas import PlainText

RunState = Literal["running", "silent", "ended", "failed"]

_INT64 = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=_INT64)]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Text200 = Annotated[PlainText, Field(min_length=1, max_length=200)]


class LoaderCreate(BaseModel):
    """What a loader says about itself when it starts; `split` is `name@number`."""

    model_config = ConfigDict(extra="ignore")

    run: Text200
    dataset: Annotated[str, Field(pattern=SLUG_PATTERN)]
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    split: Annotated[PlainText, Field(min_length=1, max_length=80)]
    subset: Annotated[PlainText, Field(min_length=1, max_length=63)]
    rank: Annotated[int, Field(ge=0, le=1_000_000)]
    world_size: Annotated[int, Field(ge=1, le=1_000_000)]
    host: Annotated[PlainText, Field(max_length=255)]
    pid: Annotated[int, Field(ge=0, le=2**31 - 1)]
    batch_size: Annotated[int, Field(ge=1, le=2**31 - 1)]
    sample_count: Count
    sdk_version: Annotated[PlainText, Field(max_length=64)]
    output: Annotated[PlainText, Field(max_length=16)]


class LoaderCreated(BaseModel):
    id: UUID
    run_id: UUID
    live_url: str


class Point(BaseModel):
    """A measurement: counters are deltas over `seconds`, the others are current values (`penstock.contract`)."""

    at: AwareDatetime
    seconds: Amount
    epoch: Count
    step: Count
    steps: Count
    samples: Count
    bytes: Count
    batches: Count
    wait_seconds: Amount
    decode_seconds: Amount
    ready_batches: Count
    window_bytes: Count
    inflight_bytes: Count
    request_p50_ms: Amount
    request_p99_ms: Amount
    retries: Count
    errors: Count


class PointsIn(BaseModel):
    points: Annotated[list[Point], Field(min_length=1, max_length=1000)]


class LoaderEnd(BaseModel):
    state: Literal["ended", "failed"]
    message: Annotated[PlainText, Field(max_length=2000)] | None = None


class LoaderRead(BaseModel):
    """One rank: rates are of its last point, and zero once it is silent or ended."""

    id: UUID
    rank: int
    host: str
    pid: int
    state: RunState
    message: str | None
    samples_per_second: float
    bytes_per_second: float
    wait_share: float
    wait_ms_per_batch: float
    ready_batches: int
    window_bytes: int
    p50_ms: float
    p99_ms: float
    retries: int
    samples: int
    epoch: int
    step: int
    steps: int
    decode_share: float


class RunTotals(BaseModel):
    samples_per_second: float
    bytes_per_second: float
    wait_share: float
    samples: int
    epoch: int
    epoch_share: float


class RunRead(BaseModel):
    """The loaders of one training job on one subset."""

    id: UUID
    name: str
    dataset: str
    version: int
    split: str
    subset: str
    user: str
    state: RunState
    started_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    world_size: int
    loaders: list[LoaderRead]
    totals: RunTotals


class RunPoint(Point):
    loader_id: UUID


class RunDetail(RunRead):
    """A run with the points of the last minutes, or, as an event, with those that have just come."""

    points: list[RunPoint]


def stored_point(point: Point, at: datetime) -> dict[str, Any]:
    """The point as it is kept, with the server's time."""
    return {**point.model_dump(mode="json"), "at": at.isoformat()}
