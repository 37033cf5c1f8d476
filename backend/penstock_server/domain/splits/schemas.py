"""Recipes, splits and loader plans as they travel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock.contract.names import COLUMN_PATTERN, SLUG_PATTERN
from penstock_server.domain.datasets.schemas import DatasetSchema, PlainText

MAX_SUBSETS = 100

ColumnName = Annotated[str, Field(pattern=COLUMN_PATTERN)]
SlugName = Annotated[str, Field(pattern=SLUG_PATTERN)]


class SubsetRecipe(BaseModel):
    """A subset by its share of the matching samples, or by a number of them."""

    model_config = ConfigDict(extra="forbid")

    name: SlugName
    ratio: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    count: Annotated[int, Field(ge=1, le=10**12)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.ratio is None) == (self.count is None):
            raise ValueError(f"subset {self.name!r} needs a ratio or a count, one of them")
        return self


class SplitRecipe(BaseModel):
    """How a split is made; with a version it fully determines who is where."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    subsets: Annotated[list[SubsetRecipe], Field(min_length=1, max_length=MAX_SUBSETS)]
    group_by: ColumnName | None = None
    stratify_by: Annotated[list[ColumnName], Field(max_length=10)] = []
    filter: Annotated[PlainText, Field(max_length=8192)] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        names = [subset.name for subset in self.subsets]
        if len(set(names)) != len(names):
            raise ValueError("two subsets have the same name")
        if len(set(self.stratify_by)) != len(self.stratify_by):
            raise ValueError("stratify_by names a column twice")
        total = sum(subset.ratio or 0.0 for subset in self.subsets)
        if total > 1 + 1e-9:
            raise ValueError(f"the ratios add up to {total:.6g}, more than 1")
        return self


class SplitCreate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: SlugName
    version: Annotated[int, Field(ge=1, lt=10**9)] | None = None
    recipe: SplitRecipe


class SubsetRead(BaseModel):
    """Asked and achieved are shares of the matching samples; classes count the label's values."""

    name: str
    count: int
    digest: str
    groups: int | None
    asked: float
    achieved: float
    classes: dict[str, int]


class SplitRead(BaseModel):
    """An immutable split of one version."""

    id: UUID
    dataset: str
    name: str
    number: int
    version: int
    digest: str
    recipe: SplitRecipe
    is_default: bool
    subsets: list[SubsetRead]
    report: dict[str, Any]
    unused: int
    created_at: datetime


class ResolveRequest(BaseModel):
    """`dataset` is `name[@version]`, `split` is `[name[@k]/]subset`."""

    model_config = ConfigDict(extra="forbid")

    dataset: Annotated[PlainText, Field(max_length=200)]
    split: Annotated[PlainText, Field(max_length=300)]


class PlanDataset(BaseModel):
    id: UUID
    slug: str


class PlanVersion(BaseModel):
    number: int
    digest: str


class PlanSplit(BaseModel):
    name: str
    number: int
    digest: str


class PlanSubset(BaseModel):
    name: str
    count: int
    digest: str


class PlanPart(BaseModel):
    """One members part to download."""

    object_id: UUID
    digest: str
    rows: int
    bytes: int
    url: str


class PlanStore(BaseModel):
    """How the bytes can be reached; `config` holds a read-only login at most."""

    reach: Literal["direct", "local_only", "http"]
    config: dict[str, Any] | None
    host: str | None
    reason: str | None


class LoaderPlan(BaseModel):
    """All that a loader needs; with it and the store alone it can train."""

    model_config = ConfigDict(populate_by_name=True)

    dataset: PlanDataset
    version: PlanVersion
    split: PlanSplit
    subset: PlanSubset
    dataset_schema: DatasetSchema = Field(alias="schema")
    parts: list[PlanPart]
    store: PlanStore
    live_url_base: str
