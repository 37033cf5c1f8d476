"""A PNG writer whose bytes depend on nothing but the picture."""

import struct
import zlib

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_STORED_BLOCK_BYTES = 0xFFFF


def indexed_png(indices: npt.NDArray[np.uint8], palette: bytes, *, depth: int) -> bytes:
    """A palette picture of 1 or 8 bits a pixel; rows are stored, not compressed."""
    height, width = indices.shape
    rows = np.packbits(indices, axis=1) if depth == 1 else np.ascontiguousarray(indices)
    filtered = np.zeros((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 1:] = rows
    header = struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", _stored(filtered.tobytes())),
            _chunk(b"IEND", b""),
        )
    )


def _stored(data: bytes) -> bytes:
    blocks = [b"\x78\x01"]
    for start in range(0, len(data), _STORED_BLOCK_BYTES):
        block = data[start : start + _STORED_BLOCK_BYTES]
        is_last = start + _STORED_BLOCK_BYTES >= len(data)
        blocks.append(struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF) + block)
    blocks.append(struct.pack(">I", zlib.adler32(data)))
    return b"".join(blocks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
