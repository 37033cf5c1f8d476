"""Running loaders, grouped by run, and the points they report."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from penstock_server.models.base import Base, uuid_key

_STATES = "state IN ('running', 'silent', 'ended', 'failed')"


class Run(Base):
    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("name", "user_id", "dataset_id", "version_number", "split", "subset"),
        CheckConstraint(_STATES, name="state"),
    )

    id: Mapped[UUID] = uuid_key()
    name: Mapped[str] = mapped_column(String(200))
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    project_id: Mapped[UUID] = mapped_column(ForeignKey("projects.id"))
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("datasets.id"), index=True)
    version_number: Mapped[int]
    split: Mapped[str] = mapped_column(String(80))
    subset: Mapped[str] = mapped_column(String(63))
    started_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    state: Mapped[str] = mapped_column(String(16), default="running")


class LoaderRow(Base):
    __tablename__ = "loaders"
    __table_args__ = (CheckConstraint(_STATES, name="state"),)

    id: Mapped[UUID] = uuid_key()
    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    rank: Mapped[int]
    world_size: Mapped[int]
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int] = mapped_column(BigInteger)
    batch_size: Mapped[int] = mapped_column(BigInteger)
    sample_count: Mapped[int] = mapped_column(BigInteger)
    sdk_version: Mapped[str] = mapped_column(String(64))
    output: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16), default="running")
    message: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    last_point: Mapped[dict[str, Any] | None]


class LoaderPointRow(Base):
    __tablename__ = "loader_points"

    loader_id: Mapped[UUID] = mapped_column(ForeignKey("loaders.id", ondelete="CASCADE"), primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    point: Mapped[dict[str, Any]]
