"""Events in a table of the catalog: the embedded way, where the worker is another process."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from sqlalchemy import delete, func, select, text

from penstock_server.db import Catalog
from penstock_server.events.port import BusEvent, Topic
from penstock_server.events.tail import TailingBus
from penstock_server.models import Event

KEPT_MINUTES = 60
_TRIM_EVERY = 200
# Any constant of ours: holders of it commit in the order of their ids.
_ORDER_LOCK = 0x70656E73


class CatalogBus(TailingBus):
    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog

    def _append(self, topic: Topic, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None:
        with self._catalog.unit() as unit:
            if self._catalog.dialect == "postgresql":
                # Else a smaller id may be committed after a larger one, and every tail would skip it.
                unit.session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ORDER_LOCK})
            now = unit.now()
            row = Event(at=now, topic=topic, kind=kind, project_id=project_id, payload=dict(payload))
            unit.session.add(row)
            unit.session.flush()
            if row.id % _TRIM_EVERY == 0:
                unit.session.execute(delete(Event).where(Event.at < now - timedelta(minutes=KEPT_MINUTES)))

    def _newest_id(self) -> str:
        with self._catalog.unit(is_read_only=True) as unit:
            return str(unit.session.scalar(select(func.max(Event.id))) or 0)

    def _read_after(self, event_id: str, limit: int) -> list[BusEvent]:
        after = self._place(event_id)[0]
        with self._catalog.unit(is_read_only=True) as unit:
            rows = unit.session.scalars(select(Event).where(Event.id > after).order_by(Event.id).limit(limit))
            return [
                BusEvent(str(row.id), row.at, cast("Topic", row.topic), row.kind, row.project_id, row.payload)
                for row in rows
            ]

    def _place(self, event_id: str) -> tuple[int, ...]:
        number = int(event_id)
        if not 0 <= number < 2**63:
            msg = f"{event_id!r} is no event id"
            raise ValueError(msg)
        return (number,)

    def health(self) -> str | None:
        return None
