"""From a native batch to the dict that the user gets."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from penstock._batch import Batch
from penstock._decode import Decoder, stacked
from penstock._errors import ConfigError, SampleCorrupt
from penstock._failures import DecodeFailures
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
        on_error: str,
        failures: DecodeFailures,
    ) -> None:
        self._members = members
        self._fields = tuple(fields)
        self._columns = tuple(columns)
        self._decodes = decode == "auto"
        self._decoder = Decoder()
        self._convert = _converter(output)
        self._on_error = on_error
        self._failures = failures
        # What a batch without samples has for a decoded field: as in the last batch that had some.
        self._empty: dict[str, Array | list[Array]] = {
            field.name: _EMPTY[field.kind] for field in self._fields if field.kind in _EMPTY
        }

    @property
    def takes_lists(self) -> bool:
        """Whether every field is decoded: then nobody needs the samples end to end in memory of their own."""
        return all(self._kind(field) is not FieldKind.BYTES for field in self._fields)

    def assemble(self, native: "_native.Batch") -> Assembled:
        """The batch of the user; fields that are not decoded are views into the arena."""
        # bytes of the core are read-only and small; tensors must be writable.
        ids = np.frombuffer(native.ids, np.uint8).reshape(native.size, 16).copy()
        positions = np.frombuffer(native.positions, np.dtype("<u8"))
        valid = np.frombuffer(native.valid, np.uint8).astype(np.bool_)
        byte_count = 0
        started = time.perf_counter()
        values: dict[str, list[Any]] = {}
        for field in self._fields:
            views = self._views(native, field.name)
            byte_count += sum(len(view) for view in views)
            values[field.name] = self._decoder.decode(field.name, self._kind(field), views, ids)
        if (rows := self._rows_to_take(values, ids, native.epoch)) is not None:
            values = {name: [column[row] for row in rows] for name, column in values.items()}
            # A row that stands in for another is a repeat.
            valid = valid[rows] & (np.arange(len(rows)) == rows if self._on_error == "replace" else True)
            ids, positions = ids[rows], positions[rows]
        batch = Batch(ids=self._convert(ids))
        for field in self._fields:
            batch[field.name] = self._presented(field, values[field.name])
        decode_seconds = time.perf_counter() - started
        for column in self._columns:
            gathered = self._members.gather(column, positions)
            batch[column.name] = gathered if isinstance(gathered, list) else self._convert(gathered)
        batch["valid"] = self._convert(valid)
        return Assembled(batch, native.seq, int(valid.sum()), byte_count, decode_seconds)

    def _views(self, native: "_native.Batch", name: str) -> list[npt.NDArray[np.uint8]]:
        if self.takes_lists:
            return [_view(sample) for sample in native.samples(name)]
        arena, offsets = native.field(name)
        whole = _view(arena)
        bounds = np.frombuffer(offsets, np.dtype("<u8")).tolist()
        return [whole[start:end] for start, end in pairwise(bounds)]

    def close(self) -> None:
        """Let the decoding threads go."""
        self._decoder.close()

    def _kind(self, field: MembersField) -> FieldKind:
        return field.kind if self._decodes else FieldKind.BYTES

    def _rows_to_take(
        self, values: dict[str, list[Any]], ids: npt.NDArray[np.uint8], epoch: int
    ) -> npt.NDArray[np.intp] | None:
        """Which row stands in each place when some cannot be decoded; None when all can."""
        bad = [
            (row, name, value)
            for name, column in values.items()
            for row, value in enumerate(column)
            if isinstance(value, SampleCorrupt)
        ]
        errors = [(str(UUID(bytes=ids[row].tobytes())), name, error) for row, name, error in bad]
        self._failures.note(epoch, len(ids), errors, is_limited=self._on_error != "raise")
        if not bad:
            return None
        is_good = np.ones(len(ids), np.bool_)
        is_good[[row for row, _, _ in bad]] = False
        good = np.flatnonzero(is_good)
        if self._on_error == "raise" or (self._on_error == "replace" and not len(good)):
            raise bad[0][2]
        return good if self._on_error == "skip" else np.where(is_good, np.arange(len(ids)), good[0])

    def _presented(self, field: MembersField, values: list[Any]) -> Any:
        kind = self._kind(field)
        if kind is FieldKind.TEXT:
            return values
        shown = values if kind is FieldKind.BYTES else self._stacked(field.name, values)
        return [self._convert(value) for value in shown] if isinstance(shown, list) else self._convert(shown)

    def _stacked(self, name: str, values: list[Array]) -> Array | list[Array]:
        if not values:
            empty = self._empty[name]
            return empty if isinstance(empty, list) else empty.copy()
        shown = stacked(values)
        self._empty[name] = [] if isinstance(shown, list) else np.empty((0, *shown.shape[1:]), shown.dtype)
        return shown


# Before any batch has shown how large they are.
_EMPTY: dict[FieldKind, Array | list[Array]] = {
    FieldKind.IMAGE: np.empty((0, 3, 0, 0), np.uint8),
    FieldKind.MASK: np.empty((0, 0, 0), np.uint8),
    FieldKind.ARRAY: np.empty((0,), np.uint8),
}


def _view(buffer: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)


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
