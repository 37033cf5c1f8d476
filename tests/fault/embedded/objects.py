"""Objects whose bytes follow from their number, so that any process can judge what it has read without a list."""

import json
import random
from pathlib import Path

from penstock._native import Store

DATASET = bytes(range(100, 116))
FIELDS = ("image", "mask")


def id_of(number: int) -> bytes:
    """Spread out, as ids are."""
    return random.Random(f"id/{number}").randbytes(16)


def fields_of(number: int) -> dict[str, bytes]:
    """One or two fields: most of them lie inside of a page of LMDB, every fourth one on pages of its own."""
    generator = random.Random(f"object/{number}")
    most_bytes = 60_000 if number % 4 == 0 else 600
    names = FIELDS[: 1 + number % 2]
    return {name: generator.randbytes(generator.randrange(most_bytes)) for name in names}


def object_of(number: int) -> tuple[bytes, list[tuple[str, bytes]]]:
    """What `Store.write` takes."""
    return id_of(number), list(fields_of(number).items())


def open_lmdb(folder: Path | str, **changes: object) -> Store:
    return Store.open(json.dumps({"kind": "lmdb", "path": str(folder)} | changes))
