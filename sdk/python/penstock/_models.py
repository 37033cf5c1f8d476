"""What the server tells, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A binary field of a dataset's samples."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A metadata column; for categories, `values` in the order of their class index."""

    name: str
    kind: str
    role: str | None = None
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """Fields and columns of a dataset."""

    fields: tuple[FieldInfo, ...] = ()
    columns: tuple[ColumnInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset as the catalog knows it."""

    id: str
    slug: str
    project: str
    description: str | None
    schema: Schema | None
    latest_version: int | None
    default_split: str | None
    sample_count: int
    byte_count: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable, published version of a dataset."""

    id: str
    dataset: str
    number: int
    digest: str
    sample_count: int
    byte_count: int
    created_at: datetime
    parent: int | None = None
    job_id: str | None = None
    schema: Schema | None = None
    quarantined_count: int = 0


@dataclass(frozen=True, slots=True)
class Subset:
    """A named part of a split; `asked` and `achieved` are shares of the samples."""

    name: str
    count: int
    digest: str
    groups: int | None = None
    asked: float | None = None
    achieved: float | None = None
    classes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """An immutable split of one version into subsets."""

    id: str
    dataset: str
    name: str
    number: int
    version: int
    digest: str
    subsets: tuple[Subset, ...]
    recipe: Mapping[str, Any]
    created_at: datetime
    report: Mapping[str, Any] = field(default_factory=dict)
    unused: int = 0
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is; `total` is None while it is still being planned."""

    done: int = 0
    total: int | None = None
    phase: str | None = None
    unit: str = "samples"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file that was left out, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job at the moment it was asked for."""

    id: str
    kind: str
    state: str
    created_at: datetime
    dataset: str | None = None
    progress: JobProgress | None = None
    result: Mapping[str, Any] | None = None
    error: JobError | None = None
    quarantined: tuple[Quarantined, ...] = ()
    attempts: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    created_by: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the job will not change any more."""
        return self.state in ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """An access token without its secret."""

    id: str
    name: str
    prefix: str
    created_at: datetime
    last_used_at: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made; the secret is shown this once and kept nowhere by the server."""

    info: TokenInfo
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlanDataset:
    """The dataset of a plan."""

    id: str
    slug: str


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """The version that a plan pins."""

    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class PlanSplit:
    """The split that a plan pins."""

    name: str
    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class PlanPart:
    """One members part to download."""

    object_id: str
    digest: str
    rows: int
    bytes: int
    url: str


@dataclass(frozen=True, slots=True)
class StoreReach:
    """How the bytes can be read; `config` may hold a password: it is never shown, and left out of pickles."""

    reach: str
    config: Mapping[str, Any] | None = field(default=None, repr=False)
    host: str | None = None
    reason: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreReach, (self.reach, None, self.host, self.reason)


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """All that a loader needs to know; with it and the store alone it can train."""

    dataset: PlanDataset
    version: PlanVersion
    split: PlanSplit
    subset: Subset
    schema: Schema
    parts: tuple[PlanPart, ...]
    store: StoreReach
    live_url_base: str | None = None


@dataclass(frozen=True, slots=True)
class RegisteredLoader:
    """Answer to the registration of a loader."""

    id: str
    run_id: str
    live_url: str
