"""What the processes of `test_process_life_ring` run: importable, because `spawn` and Celery import it again."""

import time
import uuid
from dataclasses import dataclass
from typing import Any

from fault.loader_workers import COUNT, OPTIONS, valid_ids
from unit.sdk.conftest import FakeApi, Training

import penstock
from harness.relay import ask_relay

DATASET_ID = uuid.UUID(int=10)
IN_FLIGHT = 500
# So narrow that of all answers only the first few have come when the path is held.
TRICKLE_RATE = 20e3


@dataclass(frozen=True)
class LifeOnRing:
    """A dataset that is on the ring already, and the relays before its nodes."""

    store_config: dict[str, Any]
    relay_addresses: list[str]

    def training(self) -> Training:
        return Training(FakeApi(), self.store_config, count=COUNT, rows_a_part=500, dataset_id=DATASET_ID)

    def loader(self, **changes: Any) -> penstock.Loader:
        return self.training().api.client().loader("demo", **OPTIONS | changes)

    def shape(self, **settings: Any) -> None:
        for address in self.relay_addresses:
            ask_relay(address, {"set": settings})

    def ids_of_rank(self, rank: int, world_size: int) -> list[str]:
        """What one rank gets from a loader of its own."""
        with self.loader(rank=rank, world_size=world_size) as loader:
            return [text for batch in loader for text in valid_ids(batch)]

    def hold_answers(self, loader: penstock.Loader, running: Any) -> None:
        """Take one batch, then keep everything else on its way: 500 requests that the connections have sent."""
        self.shape(rate=TRICKLE_RATE, delay_ms=50)
        assert len(next(running)["ids"]) == OPTIONS["batch_size"]
        self.shape(is_stalled=True)
        deadline = time.monotonic() + 60
        while on_their_way(loader) < IN_FLIGHT:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {on_their_way(loader)} requests are in flight")
            time.sleep(0.01)


def on_their_way(loader: penstock.Loader) -> int:
    """Requests that connections have sent and not had an answer to, counted by the connections."""
    return sum(lane["outstanding"] for lane in loader.stats()["engine"]["lane_stats"])
