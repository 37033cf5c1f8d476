"""Names for Arrow and numpy types whose stubs have parameters that the classes themselves do not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    Values: TypeAlias = pa.Array[Any]
    Column: TypeAlias = pa.ChunkedArray[Any]
else:
    Values = pa.Array
    Column = pa.ChunkedArray

Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]


def single(column: Column | Values) -> Values:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # pyarrow gives a chunked array back where there is no chunk to combine.
    combined: Any = column.combine_chunks()
    array: Values = pa.array([], column.type) if isinstance(combined, pa.ChunkedArray) else combined
    return array


def fixed_bytes(column: Column | Values, *, width: int) -> Bytes:
    """A column of fixed-size binary values without nulls as an (n, width) array."""
    array = single(column)
    buffer: Any = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.empty((0, width), dtype=np.uint8)
    begin = array.offset * width
    flat: Bytes = np.frombuffer(buffer, dtype=np.uint8)[begin : begin + len(array) * width]
    return flat.reshape(-1, width)


def with_default(array: Values, default: Any) -> Values:
    """The same values with `default` in place of nulls."""
    filled: Values = array.fill_null(default)
    return filled
