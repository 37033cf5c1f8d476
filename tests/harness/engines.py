"""Native engines with the arguments that most tests and benchmarks do not care about."""

from typing import Any

from penstock._native import Engine, Store


def engine_on(store: Store, *, dataset_id: bytes, fields: list[str], parts: list[Any], **changes: Any) -> Engine:
    """An engine of one rank over these members, shuffled and out of order; `changes` are its other arguments."""
    arguments: dict[str, Any] = {
        "batch_size": 64,
        "shuffle": True,
        "seed": 1,
        "rank": 0,
        "world_size": 1,
        "last_batch": "partial",
        "in_order": False,
        "window_bytes": None,
        "prefetch_bytes": 16 << 20,
    }
    return Engine(store, dataset_id=dataset_id, fields=fields, parts=parts, **(arguments | changes))
