"""What the processes of `test_process_life` run: importable, because `spawn` imports it again."""

import json
import time
import uuid
from pathlib import Path
from typing import Any

from unit.sdk.conftest import FakeApi, Training

import penstock
from penstock import _native

COUNT = 700
OPTIONS: dict[str, Any] = {
    "split": "train", "batch_size": 4, "decode": None, "output": "numpy", "telemetry": False, "shuffle": True,
    "window_bytes": 1 << 24, "max_displacement": 100_000,
}  # fmt: skip
# A tenth comes at once, so that a loop is under way; the rest stays in flight.
MOSTLY_SLOW = {"seed": 1, "delay_ms": [0, 1], "slow_share": 0.9, "slow_ms": 60_000}


def training_on(kind: str, folder: Path, *, faults: dict[str, Any] | None = None) -> Training:
    """A dataset in a store on disk, or in one in memory that answers slowly."""
    lmdb = {"kind": "lmdb", "path": str(folder), "is_read_only": False}
    config = lmdb if kind == "lmdb" else {"kind": "memory", "name": "life", "faults": None}
    made = Training(FakeApi(), config, count=COUNT, rows_a_part=500, dataset_id=uuid.UUID(int=7))
    store = _native.Store.open(json.dumps(config))
    made.write_to(store)
    if kind == "lmdb":
        store.close()
    else:
        # As long as one handle is open the samples stay.
        made.kept_store = store  # type: ignore[attr-defined]
        made.store_config = config | {"faults": faults}
        reach = {"reach": "direct", "config": made.store_config, "host": None, "reason": None}
        made.api.answer("POST", "/loaders/resolve", made.plan(store=reach))
    return made


def wait_for_flight(loader: penstock.Loader, kind: str) -> None:
    """Until 500 requests are under way; a store on disk answers too soon for that."""
    deadline = time.monotonic() + 60
    while kind == "memory" and loader.stats()["engine"]["inflight_samples"] < 500:
        if time.monotonic() > deadline:
            raise TimeoutError("500 requests are never in flight")
        time.sleep(0.01)


def ids_of_rank(client: penstock.Client, rank: int, world_size: int) -> list[str]:
    """What one rank gets, in a process that was spawned."""
    with client.loader("demo", **OPTIONS | {"rank": rank, "world_size": world_size}) as loader:
        return [text for batch in loader for text in valid_ids(batch)]


def valid_ids(batch: Any) -> list[str]:
    return [text for text, is_valid in zip(batch.id_strings(), batch["valid"], strict=True) if is_valid]
