"""From a native batch to the dict that the user gets."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock._batch import Batch
from penstock._decode import Decoder
from penstock._errors import ConfigError
from penstock._members import Members
from penstock.contract.kinds import FieldKind
from penstock.contract.members import MembersColumn, MembersField

if TYPE_CHECKING:
    from penstock import _native

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A finished batch and what is known of it."""

    batch: Batch
    seq: int
    sample_count: int
    byte_count: int
    decode_seconds: float


class Assembler:
    """Pairs bytes with labels by position, decodes, and converts to the wanted kind of array."""

    def __init__(
        self,
        members: Members,
        *,
        fields: Sequence[MembersField],
        columns: Sequence[MembersColumn],
        decode: str | None,
        output: str,
    ) -> None:
        self._members = members
        self._fields = tuple(fields)
        self._columns = tuple(columns)
        self._decodes = decode == "auto"
        self._decoder = Decoder()
        self._convert = _converter(output)

    def assemble(self, native: "_native.Batch") -> Assembled:
        """The batch of the user; fields that are not decoded are views into the arena."""
        # bytes of the core are read-only and small; tensors must be writable.
        ids = np.frombuffer(native.ids, np.uint8).reshape(native.size, 16).copy()
        positions = np.frombuffer(native.positions, np.dtype("<u8"))
        valid = np.frombuffer(native.valid, np.uint8).astype(np.bool_)
        batch = Batch(ids=self._convert(ids))
        byte_count = 0
        started = time.perf_counter()
        for field in self._fields:
            arena, offsets_bytes = native.field(field.name)
            offsets = np.frombuffer(offsets_bytes, np.dtype("<u8"))
            byte_count += int(offsets[-1] - offsets[0])
            batch[field.name] = self._presented(field, _views(arena, offsets), ids)
        decode_seconds = time.perf_counter() - started
        for column in self._columns:
            values = self._members.gather(column, positions)
            batch[column.name] = values if isinstance(values, list) else self._convert(values)
        batch["valid"] = self._convert(valid)
        return Assembled(batch, native.seq, int(valid.sum()), byte_count, decode_seconds)

    def close(self) -> None:
        """Let the decoding threads go."""
        self._decoder.close()

    def _presented(self, field: MembersField, views: list[npt.NDArray[np.uint8]], ids: npt.NDArray[np.uint8]) -> Any:
        kind = field.kind if self._decodes else FieldKind.BYTES
        values = self._decoder.decode(field.name, kind, views, ids)
        if isinstance(values, list):
            return values if kind is FieldKind.TEXT else [self._convert(value) for value in values]
        return self._convert(values)


def _views(arena: Any, offsets: npt.NDArray[np.uint64]) -> list[npt.NDArray[np.uint8]]:
    whole = np.frombuffer(arena, np.uint8) if len(arena) else np.empty(0, np.uint8)
    bounds = offsets.tolist()
    return [whole[start:end] for start, end in pairwise(bounds)]


def _converter(output: str) -> Callable[[Array], Any]:
    if output == "numpy":
        return lambda array: array
    try:
        import torch
    except ImportError:
        raise ConfigError(
            "output='torch' (the default) needs PyTorch, which is not installed here: "
            "run `pip install 'penstock[torch]'`, or pass output='numpy'"
        ) from None
    return torch.from_numpy
