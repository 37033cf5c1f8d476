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
from penstock._failures import DecodeFailures, SampleFailure
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
    missed: tuple[SampleFailure, ...] = ()
    """Samples that could not be decoded and are not in it."""


class BatchUndecodable(Exception):
    """A batch that is given up for a sample that cannot be decoded."""

    def __init__(self, error: SampleCorrupt, seq: int, missed: tuple[SampleFailure, ...]) -> None:
        super().__init__(str(error))
        self.error = error
        self.seq = seq
        self.missed = missed


@dataclass(frozen=True, slots=True)
class _Rows:
    """The samples of a batch that were asked for, and what is wrong with some of them."""

    ids: npt.NDArray[np.uint8]
    valid: npt.NDArray[np.bool_]
    # By row: field and error.
    errors: dict[int, list[tuple[str, SampleCorrupt]]]

    def id_of(self, row: int) -> str:
        return str(UUID(bytes=self.ids[row].tobytes()))

    def failures(self, epoch: int) -> tuple[SampleFailure, ...]:
        # Padding and replacements are owed to nobody.
        return tuple(
            SampleFailure.undecodable(epoch, self.id_of(row), errors)
            for row, errors in self.errors.items()
            if self.valid[row]
        )

    def lost(self, epoch: int, seq: int) -> BatchUndecodable:
        """All of them, because of the first that cannot be decoded."""
        first = min(self.errors, key=lambda row: (not self.valid[row], row))
        error, sample_id = self.errors[first][0][1], self.id_of(first)
        rows = [int(row) for row in np.flatnonzero(self.valid)]
        sound = (SampleFailure.lost(epoch, self.id_of(row), sample_id) for row in rows if row not in self.errors)
        missed = (*self.failures(epoch), *sound)
        error.seq, error.sample_id = seq, sample_id
        error.lost_ids = tuple(self.id_of(row) for row in rows if row != first)
        if error.lost_ids:
            count = len(error.lost_ids)
            others = "other sample of its batch is" if count == 1 else f"{count} other samples of its batch are"
            error.args = (f"{error}; the {others} lost with it",)
        return BatchUndecodable(error, seq, missed)


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

    def start_epoch(self) -> None:
        """The next batch is the first of a start."""
        self._failures.restart()

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
        found = _Rows(ids, valid, _errors_by_row(values))
        missed = found.failures(native.epoch)
        if (rows := self._rows_to_take(found, native)) is not None:
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
        return Assembled(batch, native.seq, int(valid.sum()), byte_count, decode_seconds, missed)

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

    def _rows_to_take(self, found: _Rows, native: "_native.Batch") -> npt.NDArray[np.intp] | None:
        """Which row stands in each place when some cannot be decoded; None when all can."""
        if self._on_error != "raise":
            errors = [error for of_row in found.errors.values() for _, error in of_row]
            self._failures.count(native.size, found.failures(native.epoch), errors)
        if not found.errors:
            return None
        is_good = np.ones(native.size, np.bool_)
        is_good[list(found.errors)] = False
        good = np.flatnonzero(is_good)
        if self._on_error == "raise" or (self._on_error == "replace" and not len(good)):
            raise found.lost(native.epoch, native.seq)
        return good if self._on_error == "skip" else np.where(is_good, np.arange(native.size), good[0])

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


def _errors_by_row(values: dict[str, list[Any]]) -> dict[int, list[tuple[str, SampleCorrupt]]]:
    errors: dict[int, list[tuple[str, SampleCorrupt]]] = {}
    for name, column in values.items():
        for row, value in enumerate(column):
            if isinstance(value, SampleCorrupt):
                errors.setdefault(row, []).append((name, value))
    return errors


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
