"""A version as the API returns it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from penstock_server.domain.datasets.schemas import DatasetSchema


class VersionRead(BaseModel):
    """An immutable, numbered snapshot of a dataset."""

    model_config = ConfigDict(populate_by_name=True)

    id: UUID
    dataset: str
    number: int
    digest: str
    sample_count: int
    byte_count: int
    parent: int | None
    created_at: datetime
    job_id: UUID | None
    dataset_schema: DatasetSchema = Field(alias="schema")
    quarantined_count: int
