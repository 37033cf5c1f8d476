"""Samples whose ids and bytes follow from their number, in a memory store that can be slow and faulty."""

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.engines import engine_on
from penstock._native import Batch, Engine, Store, xxh3_64

DATASET = bytes(range(16))
FIELDS = ("image", "mask")
_worlds = itertools.count()


def derived(what: str, index: int) -> bytes:
    """Sixteen bytes that anyone can compute again."""
    return hashlib.sha256(f"{what}/{index}".encode()).digest()[:16]


@dataclass(frozen=True)
class Row:
    """One sample as it was delivered."""

    position: int
    is_valid: bool


class EngineWorld:
    """`n` samples of two fields; every third one has its mask in an object of its own."""

    def __init__(self, n: int, *, most_bytes: int = 300) -> None:
        self.n = n
        self.most_bytes = most_bytes
        self.name = f"engine-world-{next(_worlds)}"
        self.fill(self.store())

    def fill(self, store: Store) -> None:
        """Write all samples into a store."""
        objects = []
        for i in range(self.n):
            image, mask = ((field, self.content(field, i)) for field in FIELDS)
            if i % 3 == 0:
                objects += [(derived("object", i), [image]), (derived("mask", i), [mask])]
            else:
                objects.append((derived("object", i), [image, mask]))
        store.write("samples", DATASET, objects)

    def content(self, field: str, index: int) -> bytes:
        """The bytes of one field of one sample."""
        seed = derived(field, index)
        length = int.from_bytes(seed[:4], "little") % (self.most_bytes + 1)
        return (seed * (length // 16 + 1))[:length]

    def store(self, **faults: Any) -> Store:
        """A store over the samples; `faults` as in the memory store's fault plan."""
        return Store.open(json.dumps({"kind": "memory", "name": self.name, "faults": faults or None}))

    def parts(self, fields: tuple[str, ...] = FIELDS) -> list[Any]:
        """The columns of the members in two parts."""
        half = self.n // 2
        return [self._part(range(half), fields), self._part(range(half, self.n), fields)]

    def _part(self, rows: range, fields: tuple[str, ...]) -> Any:
        columns = []
        for field in fields:
            apart = [field == "mask" and i % 3 == 0 for i in rows]
            objects = [derived("mask" if own else "object", i) for i, own in zip(rows, apart, strict=True)]
            contents = [self.content(field, i) for i in rows]
            sizes = np.array([len(data) for data in contents], "<u8")
            sums = np.array([xxh3_64(data) for data in contents], "<u8")
            columns.append((b"".join(objects), sizes, sums))
        return b"".join(derived("sample", i) for i in rows), columns

    def engine(self, store: Store | None = None, **changes: Any) -> Engine:
        """An engine over all samples; `changes` are its arguments."""
        fields = tuple(changes.pop("fields", FIELDS))
        arguments: dict[str, Any] = {
            "dataset_id": DATASET,
            "fields": list(fields),
            "parts": self.parts(fields),
            "batch_size": 4,
            "window_bytes": 1 << 20,
            "prefetch_bytes": 1 << 20,
        }
        return engine_on(store or self.store(), **(arguments | changes))

    def rows(self, batch: Batch) -> list[Row]:
        """Check that ids, positions and bytes of a batch belong together, and return its rows."""
        positions = np.frombuffer(batch.positions, "<u8").tolist()
        assert len(positions) == batch.size == len(batch.valid) == len(batch.ids) // 16
        for row, position in enumerate(positions):
            assert batch.ids[16 * row : 16 * row + 16] == derived("sample", position)
        return [Row(p, bool(v)) for p, v in zip(positions, batch.valid, strict=True)]

    def check_bytes(self, batch: Batch, fields: tuple[str, ...] = FIELDS) -> None:
        """Check every byte of a batch."""
        for field in fields:
            arena, offsets = batch.field(field)
            starts = np.frombuffer(offsets, "<u8").tolist()
            view = memoryview(arena)
            assert starts[0] == 0
            assert starts[-1] == len(arena) == view.nbytes
            for row, position in enumerate(np.frombuffer(batch.positions, "<u8").tolist()):
                assert view[starts[row] : starts[row + 1]] == self.content(field, position)


def epoch_of(engine: Engine, epoch: int) -> list[Batch]:
    """All batches of one epoch, acknowledged."""
    engine.start_epoch(epoch)
    batches: list[Batch] = []
    while (batch := engine.next_batch()) is not None:
        assert (batch.epoch, batch.step) == (epoch, len(batches))
        engine.ack(batch.seq)
        batches.append(batch)
    assert len(batches) == engine.steps()
    return batches
