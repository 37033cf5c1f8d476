"""A dataset whose ids, sizes and bytes follow from the numbers of its samples: a reader needs no copy of it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.engines import engine_on
from penstock._native import Engine, Store, xxh3_64

FIELDS = ("image", "mask")
_KIB = 1024


@dataclass(frozen=True)
class Samples:
    """`n` samples of two fields; every fourth has its mask in an object of its own, every hundredth is large."""

    n: int
    seed: int

    @property
    def dataset_id(self) -> bytes:
        return self._derived("dataset", 0)

    def id(self, index: int) -> bytes:
        return self._derived("sample", index)

    def object_id(self, field: str, index: int) -> bytes:
        is_apart = field == "mask" and index % 4 == 0
        return self._derived("mask" if is_apart else "object", index)

    def content(self, field: str, index: int) -> bytes:
        """The bytes of one field; no two samples share any longer part."""
        return hashlib.shake_128(self._derived(f"content of {field}", index)).digest(self._size(field, index))

    @cached_property
    def mean_bytes(self) -> int:
        return sum(self._size(field, index) for index in range(self.n) for field in FIELDS) // self.n

    def object_ids(self) -> set[bytes]:
        return {self.object_id(field, index) for index in range(self.n) for field in FIELDS}

    def write(self, store: Store) -> None:
        store.write("samples", self.dataset_id, list(self._objects()))

    @cached_property
    def parts(self) -> list[Any]:
        """The columns of the members, in one part."""
        columns = []
        for field in FIELDS:
            contents = [self.content(field, index) for index in range(self.n)]
            objects = b"".join(self.object_id(field, index) for index in range(self.n))
            sizes = np.array([len(content) for content in contents], "<u8")
            sums = np.array([xxh3_64(content) for content in contents], "<u8")
            columns.append((objects, sizes.tobytes(), sums.tobytes()))
        return [(b"".join(self.id(index) for index in range(self.n)), columns)]

    def engine(self, store: Store, **changes: Any) -> Engine:
        """An engine over all samples; `changes` are its arguments."""
        arguments: dict[str, Any] = {
            "dataset_id": self.dataset_id,
            "fields": list(FIELDS),
            "parts": self.parts,
            "batch_size": 32,
            "seed": self.seed,
        }
        return engine_on(store, **(arguments | changes))

    def _objects(self) -> Iterator[tuple[bytes, list[tuple[str, bytes]]]]:
        for index in range(self.n):
            fields: dict[bytes, list[tuple[str, bytes]]] = {}
            for field in FIELDS:
                fields.setdefault(self.object_id(field, index), []).append((field, self.content(field, index)))
            yield from fields.items()

    def _size(self, field: str, index: int) -> int:
        draw = int.from_bytes(self._derived(f"size of {field}", index), "big")
        if field == "mask":
            return draw % (2 * _KIB)
        if index % 100 == 99:
            return 600 * _KIB + draw % (600 * _KIB)
        if index % 10 == 5:
            return 64 * _KIB + draw % (64 * _KIB)
        return _KIB + draw % (15 * _KIB)

    def _derived(self, what: str, index: int) -> bytes:
        return hashlib.sha256(f"{self.seed}/{what}/{index}".encode()).digest()[:16]
