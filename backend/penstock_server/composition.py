"""The composition root that the server and the workers share: settings in, working parts out."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock_server.db import Catalog
from penstock_server.events import EventBus, open_bus
from penstock_server.jobs.queue import JobQueue, open_queue
from penstock_server.settings import Settings
from penstock_server.store import StoreGateway


@dataclass(frozen=True)
class Services:
    """The parts of one process. Nothing connects before its first use."""

    settings: Settings
    catalog: Catalog
    store: StoreGateway
    queue: JobQueue
    bus: EventBus
    clock: Callable[[], datetime]

    def close(self) -> None:
        self.bus.close()
        self.store.close()
        self.queue.close()
        self.catalog.close()


def build_services(settings: Settings) -> Services:
    catalog = Catalog(settings.catalog.url)
    return Services(
        settings=settings,
        catalog=catalog,
        store=StoreGateway(settings.store, settings.data_folder),
        queue=open_queue(settings, catalog),
        bus=open_bus(settings.events, catalog),
        clock=lambda: datetime.now(UTC),
    )
