"""What happened and what the catalog is: audit, idempotency keys, events, marks."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from penstock_server.models.base import Base, BigKey, uuid_key


class AuditEntry(Base):
    __tablename__ = "audit_entries"

    id: Mapped[UUID] = uuid_key()
    at: Mapped[datetime] = mapped_column(index=True)
    # No foreign key: the entry outlives the user.
    user_id: Mapped[UUID | None]
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(Text)
    request_id: Mapped[str] = mapped_column(String(64))
    detail: Mapped[dict[str, Any]]


class IdempotencyKey(Base):
    __tablename__ = "idempotency_keys"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(index=True)


class Event(Base):
    __tablename__ = "events"
    # Without it SQLite gives the number of a deleted last row out again, and a stream would miss it.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 (declared so by SQLAlchemy)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(index=True)
    topic: Mapped[str] = mapped_column(String(32))
    kind: Mapped[str] = mapped_column(String(32))
    project_id: Mapped[UUID]
    payload: Mapped[dict[str, Any]]


class CatalogMark(Base):
    __tablename__ = "catalog_marks"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
