"""Alembic's entry: on the connection that `penstock migrate` brings, or on the one the settings name."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

from penstock_server.db import Catalog
from penstock_server.models import Base
from penstock_server.models.base import UtcDateTime
from penstock_server.settings import load_settings


def render_item(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Migrations name plain types: they must run long after our own types have changed."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, JSON | JSONB):
        return "JSON"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_item,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("Penstock's migrations need the database itself; there is no offline form")

given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    catalog = Catalog(load_settings().catalog.url)
    with catalog.engine.begin() as opened:
        run(opened)
    catalog.close()
