"""The port of the event bus and the choice of its kind."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from penstock_server.db import Catalog
from penstock_server.settings import EventsSettings

Topic = Literal["jobs", "runs", "datasets"]
TOPICS: tuple[Topic, ...] = ("jobs", "runs", "datasets")


@dataclass(frozen=True)
class BusEvent:
    """One thing that happened. `id` grows along a stream and is what Last-Event-ID carries."""

    id: str
    at: datetime
    topic: Topic
    kind: str
    project_id: UUID
    payload: dict[str, Any]


class EventBus(Protocol):
    def publish(self, topic: Topic, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None:
        """Tells everybody; call it by `unit.after_commit`. Never raises: losing an event loses no truth."""

    async def subscribe(self, topics: Collection[Topic], after_id: str | None = None) -> AsyncIterator[BusEvent]:
        """Events after `after_id` (as far back as they are kept), or from now on; ends when the bus is closed.

        Once this returns, nothing that is published is missed.
        """

    def health(self) -> str | None:
        """None, or what is wrong."""

    def close(self) -> None: ...


def open_bus(settings: EventsSettings, catalog: Catalog) -> EventBus:
    if settings.kind == "redis" and settings.redis_url is not None:
        from penstock_server.events.redis_bus import RedisBus

        return RedisBus(settings.redis_url)
    from penstock_server.events.catalog_bus import CatalogBus

    return CatalogBus(catalog)
