"""Stored bytes to arrays and text."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from penstock._errors import EngineClosed, SampleCorrupt
from penstock._threads import DaemonPool
from penstock.contract.kinds import FieldKind

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

MAX_THREADS = 8


class Undecodable(ValueError):
    """Why a sample that is whole cannot be decoded; the caller adds which."""


class Decoder:
    """Decodes the samples of a batch on a few threads; Pillow leaves the interpreter free meanwhile."""

    def __init__(self) -> None:
        self._thread_count = min(MAX_THREADS, len(os.sched_getaffinity(0)))
        self._pool: DaemonPool | None = None
        self._is_closed = False

    def decode(self, field: str, kind: FieldKind, views: Sequence[Bytes], ids: Bytes) -> list[Any]:
        """What each sample is; a SampleCorrupt stands for one that cannot be decoded."""
        if kind is FieldKind.BYTES:
            return list(views)

        def decode_slice(part: slice) -> list[Any]:
            return [_decoded(kind, view, field, row) for view, row in zip(views[part], ids[part], strict=True)]

        return self._mapped(decode_slice, len(views))

    def close(self) -> None:
        """Let the threads go, for good."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.close()

    def _mapped(self, function: Callable[[slice], list[Any]], count: int) -> list[Any]:
        step = max(1, -(-count // (2 * self._thread_count)))
        slices = [slice(start, start + step) for start in range(0, count, step)]
        if len(slices) <= 1 or self._thread_count == 1:
            return function(slice(0, count))
        try:
            return [value for values in self._running_pool().map(function, slices) for value in values]
        except CancelledError:
            raise EngineClosed("this loader was closed while a batch was decoded") from None

    def _running_pool(self) -> DaemonPool:
        if self._pool is None:
            self._pool = DaemonPool(self._thread_count, name="penstock-decode")
        # Looked at after the pool is there for `close` to see: one of the two ends its threads.
        if self._is_closed:
            self._pool.close()
        return self._pool


def _decoded(kind: FieldKind, view: Bytes, field: str, row: Bytes) -> Any:
    decode, wanted = _DECODERS[kind]
    try:
        return decode(view)
    except Undecodable as error:
        reason = str(error)
    except Exception as error:
        # Damaged bytes make Pillow and numpy raise nearly anything, MemoryError for a size that cannot be too.
        reason = f"it is no {wanted} ({type(error).__name__}: {error})"
    sample_id = UUID(bytes=row.tobytes())
    return SampleCorrupt(f"field {field!r} of sample {sample_id} cannot be decoded: {reason}")


def stacked(values: list[Array]) -> Array | list[Array]:
    """One array with the batch first when all samples have one shape, else the list."""
    if not values or any(value.shape != values[0].shape or value.dtype != values[0].dtype for value in values):
        return values
    return np.stack(values)


def _image(view: Bytes) -> Array:
    image = _opened(view)
    mode = image.mode
    if mode in ("1", "L"):
        return np.array(image.convert("L"))[np.newaxis]
    if mode.startswith(("I", "F")):
        raise Undecodable(f"it has more than 8 bits a pixel (mode {mode}); store it as an array, or use decode=None")
    if mode not in ("RGB", "RGBA"):
        has_alpha = mode in ("LA", "PA", "La", "RGBa") or "transparency" in image.info
        image = image.convert("RGBA" if has_alpha else "RGB")
    # Pillow's own memory is read-only, and users write into what they get.
    return np.asarray(image).transpose(2, 0, 1).copy()


def _mask(view: Bytes) -> Array:
    image = _opened(view)
    if image.mode == "1":
        image = image.convert("L").point(lambda value: 1 if value else 0)
    # The index of a palette picture is the class; its colours are only for looking at.
    if image.mode in ("L", "P"):
        return np.array(image)
    if image.mode.startswith("I"):
        return np.array(image).astype(np.int32)
    raise Undecodable(f"a mask has one number a pixel, this picture is of mode {image.mode}; use decode=None")


def _opened(view: Bytes) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(view.data))
    image.load()
    return image


def _array(view: Bytes) -> Array:
    # Pickled objects would run code of whoever wrote them.
    array = np.load(io.BytesIO(view.data), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise Undecodable("it is an .npz archive, only .npy is read")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _text(view: Bytes) -> str:
    return view.tobytes().decode()


# How each kind is decoded, and what bytes are not when that fails.
_DECODERS: dict[FieldKind, tuple[Callable[[Bytes], Any], str]] = {
    FieldKind.IMAGE: (_image, "picture that can be read"),
    FieldKind.MASK: (_mask, "picture that can be read"),
    FieldKind.ARRAY: (_array, ".npy array"),
    FieldKind.TEXT: (_text, "UTF-8 text"),
}
