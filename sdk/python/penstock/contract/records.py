"""How bytes lie in the store."""

import re

LAYOUT_VERSION = 1
CHUNK_BYTES = 512 * 1024

SAMPLES_TABLE = "samples"
OBJECTS_TABLE = "objects"

OWN_MANIFEST = "manifest"
OWN_MEMBERS = "members"
OWN_THUMBNAIL = "thumbnail"
OWN_ROOT = "root"
OWN_HEAD = "head"
OWN_STAGED = "staged"
OWN_KINDS = (OWN_MANIFEST, OWN_MEMBERS, OWN_THUMBNAIL, OWN_ROOT, OWN_HEAD, OWN_STAGED)

# An own object has exactly one field.
OWN_FIELD = "data"

DIGEST_PREFIX = "b3:"
_DIGEST = re.compile(r"b3:[0-9a-f]{64}")


def format_digest(digest: bytes) -> str:
    """`b3:<64 hex>` of a BLAKE3 digest."""
    if len(digest) != 32:
        msg = f"a digest has 32 bytes, got {len(digest)}"
        raise ValueError(msg)
    return DIGEST_PREFIX + digest.hex()


def parse_digest(text: str) -> bytes:
    """The 32 bytes of `b3:<64 hex>`."""
    if not _DIGEST.fullmatch(text):
        msg = f"{text!r} is no digest: expected 'b3:' and 64 lower-case hex digits"
        raise ValueError(msg)
    return bytes.fromhex(text.removeprefix(DIGEST_PREFIX))
