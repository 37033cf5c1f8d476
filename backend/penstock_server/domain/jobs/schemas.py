"""Jobs and ingest requests as the API shows and takes them."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from penstock.contract.names import COLUMN_PATTERN
from penstock_server.domain.datasets.schemas import PlainText

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobKind = Literal["ingest"]
ColumnName = Annotated[str, Field(pattern=COLUMN_PATTERN)]

QUARANTINE_SHOWN = 100


class JobProgress(BaseModel):
    done: int = 0
    total: int | None = None
    phase: Literal["plan", "write", "publish"] = "plan"
    unit: Literal["samples"] = "samples"


class JobResult(BaseModel):
    version: int
    sample_count: int
    quarantined_count: int


class JobError(BaseModel):
    code: str
    detail: str


class QuarantinedRead(BaseModel):
    key: str
    reason: str


class JobRead(BaseModel):
    """A job as the API and the `job` event show it; `quarantined` lists the first hundred."""

    id: UUID
    kind: JobKind
    dataset: str | None
    state: JobState
    progress: JobProgress
    result: JobResult | None
    error: JobError | None
    quarantined: list[QuarantinedRead]
    attempts: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    created_by: str | None


class FolderSourceIn(BaseModel):
    """A folder on the server's side; `name` is the stable name its samples carry (default: the folder's own)."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["folder"] = "folder"
    path: Annotated[PlainText, Field(min_length=1, max_length=4096)]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$")] | None = None


class IngestCreate(BaseModel):
    """What to ingest.

    Without a sidecar each folder below the source is a class, kept in the column `label` (default "label").
    A sidecar (default: `metadata.csv` or `metadata.parquet` in the folder, if there) has a row a sample;
    `fields` maps a field's name to the sidecar's column with its path, for columns that are not found by themselves.
    """

    model_config = ConfigDict(extra="forbid")

    source: FolderSourceIn
    label: ColumnName | None = None
    group: ColumnName | None = None
    sidecar: Annotated[PlainText, Field(min_length=1, max_length=1024)] | None = None
    fields: Annotated[dict[ColumnName, Annotated[PlainText, Field(max_length=255)]], Field(max_length=16)] | None = None
