"""A writer that is killed again and again, and readers that run on meanwhile. Run as a program.

`writer <folder> <first number>` prints each number when it is durable. `reader <folder> <progress file> <seed>`
runs until its input ends and prints how many reads it has checked.
"""

import faulthandler
import random
import select
import sys
from itertools import count
from pathlib import Path

from fault.embedded.objects import DATASET, fields_of, id_of, object_of, open_lmdb

from penstock._native import Store

AT_ONCE = 4
AHEAD = 40


def write_on(folder: str, first: int) -> None:
    store = open_lmdb(folder, first_map_bytes=1 << 16)
    for start in count(first, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        store.write("samples", DATASET, [object_of(number) for number in numbers])
        # Scratch objects come and go, so that pages become free and are used again.
        scratch = [(bytes([0xFF] * 15 + [start % 5]), [("scratch", bytes(start % 30_000))])]
        store.write("objects", DATASET, scratch)
        print(numbers[-1], flush=True)


def read_on(folder: str, progress: Path, seed: int) -> None:
    generator = random.Random(seed)
    store = open_lmdb(folder, is_read_only=True)
    checked = 0
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        acknowledged = int(progress.read_text() or -1)
        known = generator.sample(range(acknowledged + 1), min(8, acknowledged + 1))
        for number, found in zip(known, read(store, known), strict=True):
            assert found == fields_of(number), f"object {number} was acknowledged, and now it is {found and 'torn'}"
        maybe = list(range(acknowledged + 1, acknowledged + AHEAD, 7))
        for number, found in zip(maybe, read(store, maybe), strict=True):
            assert found is None or found == fields_of(number), f"object {number} is torn"
        checked += len(known)
    print(checked, flush=True)


def read(store: Store, numbers: list[int]) -> list[dict[str, bytes] | None]:
    return store.read("samples", DATASET, [id_of(number) for number in numbers])


if __name__ == "__main__":
    faulthandler.enable()
    if sys.argv[1] == "writer":
        write_on(sys.argv[2], int(sys.argv[3]))
    else:
        read_on(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
