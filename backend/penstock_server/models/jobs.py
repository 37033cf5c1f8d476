"""The truth about jobs: jobs, their leased shards and what was put aside."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from penstock_server.models.base import Base, uuid_key


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"),
        Index(None, "state", "lease_until"),
    )

    id: Mapped[UUID] = uuid_key()
    kind: Mapped[str] = mapped_column(String(32))
    dataset_id: Mapped[UUID | None] = mapped_column(ForeignKey("datasets.id"), index=True)
    state: Mapped[str] = mapped_column(String(16), default="queued")
    payload: Mapped[dict[str, Any]]
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    attempts: Mapped[int] = mapped_column(default=0)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    fence: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[datetime | None]


class JobShard(Base):
    __tablename__ = "job_shards"
    __table_args__ = (
        UniqueConstraint("job_id", "ordinal"),
        CheckConstraint("state IN ('pending', 'leased', 'done', 'failed')", name="state"),
        Index(None, "state", "lease_until"),
    )

    id: Mapped[UUID] = uuid_key()
    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), default="pending")
    payload: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any] | None]
    attempts: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[datetime | None]


class Quarantined(Base):
    __tablename__ = "quarantined"

    id: Mapped[UUID] = uuid_key()
    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
