"""What exists: projects, datasets, versions and splits."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from penstock_server.models.base import Base, uuid_key


class Project(Base):
    __tablename__ = "projects"

    id: Mapped[UUID] = uuid_key()
    slug: Mapped[str] = mapped_column(String(63), unique=True)
    name: Mapped[str] = mapped_column(String(200))
    keyspace: Mapped[str] = mapped_column(String(48), unique=True)
    created_at: Mapped[datetime]


class Dataset(Base):
    __tablename__ = "datasets"
    __table_args__ = (UniqueConstraint("project_id", "slug"),)

    id: Mapped[UUID] = uuid_key()
    project_id: Mapped[UUID] = mapped_column(ForeignKey("projects.id"))
    slug: Mapped[str] = mapped_column(String(63))
    description: Mapped[str] = mapped_column(Text, default="")
    schema: Mapped[dict[str, Any]]
    row_version: Mapped[int] = mapped_column(default=1)
    latest_version_number: Mapped[int | None]
    # No foreign key: splits point at datasets, and a circle of keys cannot be inserted in one go.
    default_split_id: Mapped[UUID | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(index=True)
    deleted_at: Mapped[datetime | None]


class Version(Base):
    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("dataset_id", "number"),
        CheckConstraint("state IN ('reserved', 'published')", name="state"),
    )

    id: Mapped[UUID] = uuid_key()
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("datasets.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(80))
    sample_count: Mapped[int] = mapped_column(BigInteger)
    byte_count: Mapped[int] = mapped_column(BigInteger)
    parent_number: Mapped[int | None]
    schema: Mapped[dict[str, Any]]
    parts: Mapped[list[Any]]
    root_object_id: Mapped[UUID | None]
    job_id: Mapped[UUID | None]
    quarantined_count: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    published_at: Mapped[datetime | None]


class Split(Base):
    __tablename__ = "splits"
    __table_args__ = (UniqueConstraint("dataset_id", "name", "number"),)

    id: Mapped[UUID] = uuid_key()
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("datasets.id"))
    version_id: Mapped[UUID] = mapped_column(ForeignKey("versions.id"), index=True)
    name: Mapped[str] = mapped_column(String(63))
    number: Mapped[int]
    digest: Mapped[str] = mapped_column(String(80))
    recipe: Mapped[dict[str, Any]]
    subsets: Mapped[list[Any]]
    atoms: Mapped[list[Any]]
    report: Mapped[dict[str, Any]]
    unused: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
