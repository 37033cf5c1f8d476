"""What planning costs: time and memory for 10 k, 1 M and 100 M ids, and the price of a sample delivered.

The members are files that are mapped as the SDK maps real ones, sparse where a row may be all zeros. Delivery is
measured twice. Without fields nothing is read: what is left is the order, the books and the hand-over of a batch, and
the bound is for that. With one field, whose samples are empty and lie in memory, the look-ups of object ids, sizes and
checksums come to it, but so do a request, its answer and its check, which are no part of a plan: that figure has no
bound and says in its name what it includes.
"""

import mmap
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_report import BenchReport
from harness.engines import engine_on
from penstock._native import Engine, Store, xxh3_64

SIZES = {"10 k": 10_000, "1 M": 1_000_000, "100 M": bench_scale.count(100_000_000, quick=10_000_000)}
REPETITIONS = bench_scale.count(7, quick=2)
DELIVERED = bench_scale.count(2_000_000, quick=200_000)
BATCH_SIZE = 256
FIELD = "image"
ID_BYTES, WORD_BYTES = 16, 8
WRITTEN_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Costs:
    """Of one process."""

    plan_seconds: list[float]
    plan_bytes: int
    planned_microseconds: list[float]
    read_microseconds: list[float]


def main() -> None:
    report = BenchReport("plan")
    fresh = multiprocessing.get_context("spawn")
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=fresh) as process:
            costs = process.submit(measure, Path(folder), size).result()
        report.add(f"plan time, {name}", [1e3 * each for each in costs.plan_seconds], unit="ms", reach="<= 1000")
        report.add(f"memory beside the members, {name}", costs.plan_bytes / 1e6, unit="MB")
        planned, read = costs.planned_microseconds, costs.read_microseconds
        report.add(f"a sample delivered without fields, {name}", planned, unit="us of CPU", reach="<= 1")
        report.add(f"the same with an empty field, its request, answer and check, {name}", read, unit="us of CPU")
    report.print()


def measure(folder: Path, size: int) -> Costs:
    ids, objects = (mapped(folder / name, size * ID_BYTES) for name in ("ids", "objects"))
    sizes = mapped(folder / "sizes", size * WORD_BYTES)
    checksums = mapped(folder / "checksums", size * WORD_BYTES, content=xxh3_64(b"").to_bytes(WORD_BYTES, "little"))
    members = [(ids, [(objects, sizes, checksums)])]
    before = own_bytes()
    store = Store.open('{"kind": "memory", "name": "bench-plan"}')
    # The one object that all members name.
    store.write("samples", bytes(ID_BYTES), [(bytes(ID_BYTES), [(FIELD, b"")])])
    plan_seconds = []
    plan_bytes = 0
    for epoch in range(REPETITIONS):
        started = time.perf_counter()
        with engine(store, [FIELD], members) as running:
            running.start_epoch(epoch)
            plan_seconds.append(time.perf_counter() - started)
            plan_bytes = plan_bytes or own_bytes() - before
    planned = [deliver(store, [], [(ids, [])]) for _ in range(REPETITIONS)]
    read = [deliver(store, [FIELD], members) for _ in range(REPETITIONS)]
    return Costs(plan_seconds, plan_bytes, planned, read)


def deliver(store: Store, fields: list[str], parts: list[Any]) -> float:
    """Microseconds of this process's CPU for each sample of a batch that Python has taken."""
    with engine(store, fields, parts) as running:
        cpu = time.process_time()
        delivered = epoch = 0
        while delivered < DELIVERED:
            running.start_epoch(epoch)
            while delivered < DELIVERED and (batch := running.next_batch()) is not None:
                running.ack(batch.seq)
                delivered += batch.size
            epoch += 1
        return 1e6 * (time.process_time() - cpu) / delivered


def engine(store: Store, fields: list[str], parts: list[Any]) -> Engine:
    return engine_on(
        store,
        dataset_id=bytes(ID_BYTES),
        fields=fields,
        parts=parts,
        batch_size=BATCH_SIZE,
        # With no bytes to wait for, it runs this far ahead: a few thousand samples, as with real ones.
        prefetch_bytes=1 << 20,
    )


def mapped(path: Path, size_bytes: int, *, content: bytes = b"") -> memoryview:
    """A file of this size; full of `content`, or of zeros that take no place."""
    with path.open("wb") as file:
        while content and file.tell() < size_bytes:
            file.write(content * (min(size_bytes - file.tell(), WRITTEN_AT_ONCE) // len(content)))
    os.truncate(path, size_bytes)
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def own_bytes() -> int:
    """Memory of this process that is no mapped file."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


if __name__ == "__main__":
    main()
