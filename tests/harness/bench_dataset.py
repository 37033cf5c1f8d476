"""Samples for benchmarks: equal sizes, bytes that no network or store can compress."""

import hashlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.engines import engine_on
from penstock._native import Engine, Store, xxh3_64

FIELD = "image"
SAMPLE_BYTES = 100_000
# What the SDK gives the only loader of a machine with 4 GiB free.
PREFETCH_BYTES = 1 << 30
_DATASET_ID = hashlib.sha256(b"bench").digest()[:16]
_WRITTEN_AT_ONCE = 200


@dataclass(frozen=True)
class BenchDataset:
    """`size` samples of one field, each in an object of its own."""

    size: int
    sample_bytes: int = SAMPLE_BYTES

    @property
    def dataset_id(self) -> bytes:
        return _DATASET_ID

    @property
    def total_bytes(self) -> int:
        return self.size * self.sample_bytes

    @cached_property
    def object_ids(self) -> list[bytes]:
        return [hashlib.sha256(b"object %d" % index).digest()[:16] for index in range(self.size)]

    def content(self, index: int) -> bytes:
        return np.random.default_rng(index).bytes(self.sample_bytes)

    def write(self, store: Store) -> None:
        for start in range(0, self.size, _WRITTEN_AT_ONCE):
            rows = range(start, min(self.size, start + _WRITTEN_AT_ONCE))
            objects = [(self.object_ids[row], [(FIELD, self.content(row))]) for row in rows]
            store.write("samples", _DATASET_ID, objects)

    @cached_property
    def parts(self) -> list[Any]:
        """The members, as the engine takes them."""
        ids = b"".join(self.object_ids)
        sizes = np.full(self.size, self.sample_bytes, "<u8")
        checksums = np.array([xxh3_64(self.content(row)) for row in range(self.size)], "<u8")
        return [(ids, [(ids, sizes, checksums)])]

    def engine(self, store: Store, **changes: Any) -> Engine:
        """An engine with nothing set by hand; `changes` are its arguments."""
        arguments: dict[str, Any] = {
            "dataset_id": _DATASET_ID,
            "fields": [FIELD],
            "parts": self.parts,
            "prefetch_bytes": PREFETCH_BYTES,
            "is_prefetch_fixed": False,
        }
        return engine_on(store, **(arguments | changes))


def read_epoch(engine: Engine, epoch: int, form: str = "arena") -> int:
    """Takes a whole epoch as views of what the engine hands out, and returns how many bytes there were."""
    received = 0
    engine.start_epoch(epoch)
    while (batch := engine.next_batch()) is not None:
        buffers = batch.samples(FIELD) if form == "list" else batch.field(FIELD)[:1]
        received += sum(np.frombuffer(memoryview(buffer), np.uint8).nbytes for buffer in buffers)
        engine.ack(batch.seq)
    return received


@dataclass(frozen=True)
class Arrival:
    """One batch as a consumer saw it that is never busy."""

    at: float
    epoch: int
    step: int
    size_bytes: int


def arrivals(engine: Engine) -> Iterator[Arrival]:
    """Takes batches epoch after epoch, without end."""
    for epoch in itertools.count():
        engine.start_epoch(epoch)
        for _ in range(engine.steps()):
            batch = engine.next_batch()
            assert batch is not None
            at = time.monotonic()
            arena, _ = batch.field(FIELD)
            engine.ack(batch.seq)
            yield Arrival(at, epoch, batch.step, len(arena))
