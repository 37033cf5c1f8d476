"""Derived identifiers: the same content under the same name has the same id on every machine."""

import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from uuid import UUID

HASH_BYTES = 32
ID_BYTES = 16

_SAMPLE_TAG = b"penstock-sample-1"
_OBJECT_TAG = b"penstock-object-1"
_OWN_TAG = b"penstock-own-1"


def content_hash(fields: Mapping[str, bytes]) -> bytes:
    """Hash over all binary fields of a sample: `fields` maps a field's name to the BLAKE3 of its bytes."""
    if not fields:
        msg = "a sample needs at least one field to have a content hash"
        raise ValueError(msg)
    digest = hashlib.sha256()
    for name, field_hash in sorted((name.encode(), value) for name, value in fields.items()):
        _require_hash(field_hash)
        digest.update(_framed(name))
        digest.update(field_hash)
    return digest.digest()


def sample_id(dataset_id: UUID, source: str, key: str, content: bytes) -> UUID:
    """Id of a sample: the same file of the same source with the same bytes is the same sample."""
    _require_hash(content)
    return _derived(_SAMPLE_TAG, dataset_id.bytes, source.encode(), key.encode(), content)


def object_id(dataset_id: UUID, fields: Sequence[str], content: bytes) -> UUID:
    """Id of the stored bytes of `fields`; the order in which the fields are named does not matter."""
    _require_hash(content)
    if not fields or len(set(fields)) != len(fields):
        msg = f"an object holds one or more different fields, got {list(fields)!r}"
        raise ValueError(msg)
    names = sorted(name.encode() for name in fields)
    return _derived(_OBJECT_TAG, dataset_id.bytes, b"".join(_framed(name) for name in names), content)


def own_object_id(dataset_id: UUID, kind: str, name: str) -> UUID:
    """Id of an object that Penstock itself stores (thumbnail, manifest part, members part, ...)."""
    return _derived(_OWN_TAG, dataset_id.bytes, kind.encode(), name.encode())


def _framed(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def _derived(tag: bytes, *parts: bytes) -> UUID:
    digest = hashlib.sha256(_framed(tag))
    for part in parts:
        digest.update(_framed(part))
    return _shaped(int.from_bytes(digest.digest()[:ID_BYTES], "big"), version=8)


def _shaped(value: int, *, version: int) -> UUID:
    value &= ~((0xF << 76) | (0x3 << 62))
    return UUID(int=value | (version << 76) | (0x2 << 62))


def _require_hash(value: bytes) -> None:
    if len(value) != HASH_BYTES:
        msg = f"a content hash has {HASH_BYTES} bytes, got {len(value)}"
        raise ValueError(msg)


_uuid7_lock = threading.Lock()
_uuid7_last_tick = 0


def uuid7() -> UUID:
    """A new time-ordered id; strictly increasing within a process, also inside one millisecond."""
    global _uuid7_last_tick
    now_ns = time.time_ns()
    # 48 bits of milliseconds and 12 bits of the fraction of one, as RFC 9562 method 3 has it.
    tick = (now_ns // 1_000_000 << 12) | (now_ns % 1_000_000 * 4096 // 1_000_000)
    with _uuid7_lock:
        tick = max(tick, _uuid7_last_tick + 1)
        _uuid7_last_tick = tick
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return _shaped(((tick >> 12) << 80) | ((tick & 0xFFF) << 64) | random_bits, version=7)
