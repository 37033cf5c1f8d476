"""The members of a subset: downloaded once, verified, memory-mapped."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock._config import CACHE_VARIABLE, cache_folder
from penstock._errors import ConfigError, PenstockError, TransportError
from penstock._models import LoaderPlan, PlanPart
from penstock._transport import Transport
from penstock.contract import members as layout
from penstock.contract.kinds import ColumnKind
from penstock.contract.records import format_digest, parse_digest

if TYPE_CHECKING:
    from typing_extensions import Buffer

    # Sample ids; for each field object ids, sizes and checksums.
    NativePart: TypeAlias = tuple[Buffer, list[tuple[Buffer, Buffer, Buffer]]]

# What the engine counts for a sample besides its bytes.
_SLOT_COST_BYTES = 256

Positions = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]


class DamagedPart(PenstockError):
    """A members part whose rows are not the ones that the plan names."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of one subset in plan order; a *position* counts over all parts."""

    header: layout.MembersHeader
    batches: tuple[pa.RecordBatch, ...]
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    def native_parts(self, fields: Sequence[str]) -> "list[NativePart]":
        """What the engine reads by: per part the ids, and per field object ids, sizes and checksums, without a copy."""
        return [
            (
                _values(batch, layout.ID_COLUMN, 16),
                [
                    (
                        _values(batch, layout.object_column(field), 16),
                        _values(batch, layout.size_column(field), 8),
                        _values(batch, layout.xxh3_column(field), 8),
                    )
                    for field in fields
                ],
            )
            for batch in self.batches
        ]

    def batch_bytes(self, fields: Sequence[str], batch_size: int) -> int:
        """Memory that a batch of these fields needs while it is made: twice its bytes, or its largest sample."""
        total = largest = 0
        for batch in self.batches:
            columns = [_numbers(batch, layout.size_column(field)) for field in fields]
            sizes = columns[0] if len(columns) == 1 else np.sum(columns, axis=0)
            total += int(sizes.sum())
            largest = max(largest, int(sizes.max()))
        mean = total // len(self) + _SLOT_COST_BYTES
        return max(largest, 2 * mean * min(batch_size, len(self)))

    def gather(self, column: layout.MembersColumn, positions: Positions) -> Array | list[str]:
        """The values of a column at these positions, in their order."""
        name = layout.value_column(column.name)
        if column.kind is ColumnKind.TEXT:
            return self._gather_text(name, positions)
        if len(self.batches) == 1:
            values = _numbers(self.batches[0], name)[positions]
        else:
            parts = np.searchsorted(self.starts, positions, side="right") - 1
            first = _numbers(self.batches[0], name)
            values = np.empty((len(positions), *first.shape[1:]), first.dtype)
            for part in np.unique(parts):
                is_here = parts == part
                rows = positions[is_here] - np.uint64(self.starts[part])
                values[is_here] = _numbers(self.batches[part], name)[rows]
        return _presented(column, values)

    def _gather_text(self, name: str, positions: Positions) -> list[str]:
        parts = np.searchsorted(self.starts, positions, side="right") - 1
        return [
            self.batches[part].column(name)[int(position) - self.starts[part]].as_py()
            for part, position in zip(parts, positions, strict=True)
        ]


def open_members(plan: LoaderPlan, transport: Transport, *, folder: Path | None = None) -> Members:
    """The members of the plan's subset, from the cache or the server."""
    if not plan.parts or plan.subset.count == 0:
        raise ConfigError(f"subset {plan.subset.name!r} of {plan.dataset.slug!r} has no samples: nothing to load")
    cache = _private_folder((folder or cache_folder()) / "members")
    batches = tuple(_part(part, transport, cache) for part in plan.parts)
    starts = tuple(accumulate((batch.num_rows for batch in batches), initial=0))
    if starts[-1] != plan.subset.count:
        raise TransportError(
            f"the parts of {plan.subset.name!r} have {starts[-1]} members, the split says {plan.subset.count}"
        )
    return Members(_header(batches[0]), batches, starts)


def _part(part: PlanPart, transport: Transport, cache: Path) -> pa.RecordBatch:
    try:
        path = cache / f"{parse_digest(part.digest).hex()}.arrow"
    except ValueError as error:
        raise TransportError(f"the server's plan cannot be used: {error}") from None
    with suppress(FileNotFoundError, DamagedPart):
        return _opened(path, part)
    _download(part, transport, path)
    try:
        return _opened(path, part)
    except DamagedPart as error:
        path.unlink(missing_ok=True)
        raise TransportError(
            f"members part {part.object_id} came damaged from {transport.config.base_url}: {error}; "
            "try again, and if it stays so check the server's store"
        ) from None


def _download(part: PlanPart, transport: Transport, path: Path) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    except OSError as error:
        raise _unusable(path.parent, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            transport.download(part.url, file)
            file.flush()
            os.fsync(file.fileno())
        # Loaders of other ranks may do the same now: whoever is last wins, with the same bytes.
        Path(name).replace(path)
    except OSError as error:
        raise _unusable(path.parent, error) from None
    finally:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)


def _opened(path: Path, part: PlanPart) -> pa.RecordBatch:
    from penstock._native import blake3, row_hashes

    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.num_record_batches != 1:
            raise DamagedPart(f"it has {reader.num_record_batches} record batches instead of one")
        batch = reader.get_batch(0)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedPart(f"{path} is no Arrow file: {error}") from None
    # Hashed each time: a file cut short by a full disk must not become wrong training data.
    found = format_digest(blake3(row_hashes(pa.Table.from_batches([batch]))))
    if batch.num_rows != part.rows or found != part.digest:
        raise DamagedPart(f"{batch.num_rows} rows of digest {found}, expected {part.rows} of {part.digest}")
    return batch


def _header(batch: pa.RecordBatch) -> layout.MembersHeader:
    text = (batch.schema.metadata or {}).get(layout.METADATA_KEY)
    if text is None:
        raise TransportError("a members part has no header of Penstock: is the server of this release?")
    try:
        return layout.MembersHeader.from_json(text)
    except ValueError as error:
        raise TransportError(str(error)) from None


def _values(batch: pa.RecordBatch, name: str, width: int) -> memoryview:
    column = batch.column(name)
    buffer = column.buffers()[1]
    if buffer is None:
        raise TransportError(f"column {name!r} of a members part has no values")
    return memoryview(buffer.slice(column.offset * width, len(column) * width))


def _numbers(batch: pa.RecordBatch, name: str) -> Array:
    column = batch.column(name)
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        return np.frombuffer(_values(batch, name, width), np.uint8).reshape(len(column), width)
    return column.to_numpy(zero_copy_only=True)


def _presented(column: layout.MembersColumn, values: Array) -> Array:
    if column.kind is ColumnKind.CATEGORY:
        # Losses of torch want class indices as int64.
        return values.astype(np.int64)
    if column.kind is ColumnKind.MULTI_CATEGORY:
        bits = np.unpackbits(values, axis=1, bitorder="little")
        return bits[:, : len(column.values or ())]
    return values


def _private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        if status.st_uid != os.getuid():
            raise ConfigError(
                f"the cache folder {folder} belongs to another user: set {CACHE_VARIABLE} to one of yours"
            )
        # Ids and labels of patients: on shared machines nobody else may read or change them.
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise _unusable(folder, error) from None
    return folder


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the cache folder {folder} cannot be used ({error.strerror}): set {CACHE_VARIABLE} to another")
