"""Damages a copy of a data file again and again and uses each copy in a child of its own. Run as a program.

Arguments: the sound data file, a folder for the copies, the number of the first damage, and how many there are.
Prints one line of JSON a damage. A child that crashes is seen by the signal that ended it.
"""

import faulthandler
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fault.embedded.objects import DATASET, fields_of, id_of, object_of, open_lmdb

from penstock._errors import SampleCorrupt, StoreUnavailable
from penstock._native import Store, xxh3_64

OBJECTS = 200
NEW = range(OBJECTS, OBJECTS + 40)
GONE = range(0, OBJECTS, 7)
PAGE = 4096
REFUSALS = (SampleCorrupt, StoreUnavailable)


def write_sound_file(folder: Path) -> Path:
    """A file of several levels, with values of all sizes and free pages."""
    with open_lmdb(folder, first_map_bytes=1 << 16) as store:
        for first in range(0, OBJECTS, 50):
            store.write("samples", DATASET, [object_of(number) for number in range(first, first + 50)])
        store.delete("samples", DATASET, [id_of(number) for number in range(0, OBJECTS, 3)])
        store.write("samples", DATASET, [object_of(number) for number in range(0, OBJECTS, 3)])
    return folder / DATASET.hex() / "data.mdb"


def lay_file(folder: Path, content: bytes | bytearray) -> Path:
    """Makes the folder of a store with this data file."""
    file = folder / DATASET.hex() / "data.mdb"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


def damage(content: bytearray, number: int) -> str:
    """Change the content in the way of this number; returns what was done."""
    generator = random.Random(f"damage/{number}")
    ways: tuple[Callable[[bytearray, random.Random], str], ...] = (
        flip_anywhere,
        flip_structure,
        flip_structure,
        flip_head,
        flip_many,
        cut_off,
        clear_page,
        copy_page,
    )
    return ways[number % len(ways)](content, generator)


def flip_anywhere(content: bytearray, generator: random.Random) -> str:
    return flip(content, generator.randrange(len(content)), generator)


def flip_structure(content: bytearray, generator: random.Random) -> str:
    """A byte of a page of a tree: those are what LMDB follows."""
    pages = [start for start in range(0, len(content), PAGE) if content[start + 10] in (1, 2)]
    return flip(content, generator.choice(pages) + generator.randrange(PAGE), generator)


def flip_head(content: bytearray, generator: random.Random) -> str:
    return flip(content, generator.choice((0, PAGE)) + generator.randrange(152), generator)


def flip_many(content: bytearray, generator: random.Random) -> str:
    return ", ".join(flip_anywhere(content, generator) for _ in range(100))[:60] + "..."


def flip(content: bytearray, place: int, generator: random.Random) -> str:
    content[place] ^= generator.randrange(1, 256)
    return f"flip at {place}"


def cut_off(content: bytearray, generator: random.Random) -> str:
    del content[generator.randrange(1, len(content)) :]
    return f"cut to {len(content)}"


def clear_page(content: bytearray, generator: random.Random) -> str:
    page = generator.randrange(len(content) // PAGE) * PAGE
    content[page : page + PAGE] = bytes(PAGE)
    return f"cleared at {page}"


def copy_page(content: bytearray, generator: random.Random) -> str:
    """A write that went to the wrong place."""
    source, target = (generator.randrange(len(content) // PAGE) * PAGE for _ in range(2))
    content[target : target + PAGE] = content[source : source + PAGE]
    return f"copied {source} to {target}"


def examine(folder: Path) -> dict[str, int]:
    """Use everything that a store can do; returns how often what came of it."""
    counts = {"right": 0, "refused": 0, "unexplained": 0, "absent": 0, "wrote": 0}
    with open_lmdb(folder) as store:
        before = [read(store, number, counts) for number in range(OBJECTS)]
        try:
            unknown = set(store.scan("samples", DATASET)) - {id_of(number) for number in range(OBJECTS)}
            for object_id in unknown:
                # A damaged key names an object that nobody has written: its bytes must not be handed out under it.
                assert_refused(store, object_id)
        except REFUSALS:
            counts["refused"] += 1
        for number in range(0, OBJECTS, 11):
            check_verification(store, number, is_readable=before[number])
        try:
            store.write("samples", DATASET, [object_of(number) for number in NEW])
            store.delete("samples", DATASET, [id_of(number) for number in GONE])
            counts["wrote"] = 1
        except REFUSALS:
            counts["refused"] += 1
    # What was readable before LMDB wrote to this file still is, in a store that trusts nothing from before.
    with open_lmdb(folder) as store:
        for number in range(OBJECTS):
            is_gone = bool(counts["wrote"]) and number in GONE
            assert not before[number] or is_gone or read(store, number, counts), f"object {number} was lost by writing"
        for number in NEW if counts["wrote"] else ():
            found = store.read("samples", DATASET, [id_of(number)], list(fields_of(number)))
            assert found == [fields_of(number)], f"new object {number} was lost"
    return counts


def read(store: Store, number: int, counts: dict[str, int]) -> bool:
    """Whether an object can be read by the names of its fields; wrong bytes are a failure of the test.

    All fields of it may be refused although they are sound: what stands beside them is damaged, so one may be missing.
    A delete can put something damaged beside them.
    """
    expected = fields_of(number)
    is_readable = False
    for fields in (None, list(expected)):
        try:
            found = store.read("samples", DATASET, [id_of(number)], fields)[0]
        except REFUSALS as error:
            is_explained = any(word in str(error) for word in ("checksum", "damaged", "are there", "layout"))
            counts["refused" if is_explained else "unexplained"] += 1
            is_readable = False
            continue
        assert found is None or found == expected, f"wrong bytes of object {number}, {fields}"
        counts["absent" if found is None else "right"] += 1
        is_readable = found is not None
    return is_readable


def assert_refused(store: Store, object_id: bytes) -> None:
    with suppress(*REFUSALS):
        assert store.read("samples", DATASET, [object_id]) == [None]


def check_verification(store: Store, number: int, *, is_readable: bool) -> None:
    expected = [(id_of(number), name, len(data), xxh3_64(data)) for name, data in fields_of(number).items()]
    try:
        findings = store.verify("samples", DATASET, expected)
    except REFUSALS:
        return
    assert not is_readable or findings == [None] * len(expected), (number, findings)


def in_child(job: Callable[[], dict[str, int]]) -> dict[str, object]:
    """What came of a job, and how its process ended."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(target, json.dumps(job()).encode())
            code = 0
        except BaseException as error:
            os.write(target, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(code)
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"status": os.waitstatus_to_exitcode(status)} | (json.loads(answer) if answer else {})


def main(sound: Path, copies: Path, first: int, count: int) -> None:
    faulthandler.enable()
    for number in range(first, first + count):
        content = bytearray(sound.read_bytes())
        what = damage(content, number)
        folder = copies / str(number)
        lay_file(folder, content)
        found = in_child(lambda folder=folder: examine(folder))  # type: ignore[misc]  # the default binds the loop's value
        print(json.dumps({"number": number, "what": what} | found), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
