"""The writer on a ring of three against plain insert loops: the same rows at LOCAL_QUORUM, in turn.

The loops are acsylla's with several numbers of inserts in flight; the best of them counts. They get their checksums
for nothing and check nothing. Three nodes share the machine's cores, and flush and compact when they please: so one
window is long, all take their turns in an order that is drawn anew, and every turn begins with empty tables.
"""

import asyncio
import random
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import acsylla

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_cluster import BenchCluster
from harness.bench_dataset import FIELD, BenchDataset
from harness.bench_report import BenchReport
from harness.cassandra.cluster import RING
from harness.run import Run
from penstock._native import Store, xxh3_64

DATASET = BenchDataset(bench_scale.count(400, quick=100))
# A window writes the dataset so often.
PASSES = bench_scale.count(5, quick=1)
REPETITIONS = bench_scale.count(9, quick=2)
# Not counted: the nodes' compiler has seen small writes only.
FIRST_REPETITIONS = bench_scale.count(2, quick=1)
IN_FLIGHT = (32, 64, 128, 256, 512)
WRITER = "writer"
WARM_BYTES = 1000
WARM_WRITES = bench_scale.count(10_000, quick=500)
MOST_WARM_WINDOWS = bench_scale.count(16, quick=2)


def main() -> None:
    run = Run()
    try:
        # The relays of the usual ring would be one more thing to pay for.
        cluster = BenchCluster(run, DATASET, layout=replace(RING, has_relays=False))
        report = BenchReport("write")
        with cluster.open_store() as store:
            warm(cluster, store)
            cluster.report_warmth(report)
            asyncio.run(measure(cluster, store, report))
        report.print()
    finally:
        run.close()


def warm(cluster: BenchCluster, store: Store) -> None:
    """With small writes, many of them."""

    def write_window() -> None:
        data = bytes(WARM_BYTES)
        store.write("samples", uuid.uuid4().bytes, [(uuid.uuid4().bytes, [(FIELD, data)]) for _ in range(WARM_WRITES)])

    cluster.warm_with(write_window, most_windows=MOST_WARM_WINDOWS)


async def measure(cluster: BenchCluster, store: Store, report: BenchReport) -> None:
    contents = [DATASET.content(row) for row in range(DATASET.size)]
    loop = await InsertLoop.open(cluster, contents)
    loops = {f"{in_flight} inserts in flight": in_flight for in_flight in IN_FLIGHT}
    rates: dict[str, list[float]] = {name: [] for name in (WRITER, *loops)}
    chooser = random.Random(0)
    for repetition in range(FIRST_REPETITIONS + REPETITIONS):
        for name in chooser.sample(list(rates), len(rates)):
            cluster.cassandra.session.execute(f"TRUNCATE {cluster.keyspace}.samples")
            seconds = 0.0
            for _ in range(PASSES):
                seconds += write(store, contents) if name == WRITER else await loop.run(loops[name])
            if repetition >= FIRST_REPETITIONS:
                rates[name].append(PASSES * DATASET.total_bytes / seconds / 1e6)
    for name, values in rates.items():
        report.add(f"rate, {name}", values, unit="MB/s")
    best = max(loops, key=lambda name: statistics.median(rates[name]))
    ratios = [ours / theirs for ours, theirs in zip(rates[WRITER], rates[best], strict=True)]
    report.add(f"writer / {best}", ratios, unit="x", reach=">= 0.9")


def write(store: Store, contents: Sequence[bytes]) -> float:
    objects = [(uuid.uuid4().bytes, [(FIELD, data)]) for data in contents]
    started = time.perf_counter()
    store.write("samples", uuid.uuid4().bytes, objects)
    return time.perf_counter() - started


class InsertLoop:
    """Prepared inserts of whole rows, so many at a time."""

    def __init__(self, session: Any, prepared: Any, contents: Sequence[bytes]) -> None:
        self._session = session
        self._prepared = prepared
        self._rows = [(data, xxh3_64(data)) for data in contents]

    @classmethod
    async def open(cls, cluster: BenchCluster, contents: Sequence[bytes]) -> "InsertLoop":
        addresses = [point.rpartition(":")[0] for point in cluster.cassandra.contact_points]
        # One connection a node is the default, and the best here.
        driver = acsylla.create_cluster(
            addresses, port=cluster.cassandra.port, consistency="LOCAL_QUORUM", request_timeout=60, log_level="disabled"
        )
        session = await driver.create_session(keyspace=cluster.keyspace)
        prepared = await session.create_prepared(
            "INSERT INTO samples (dataset_id, object_id, field, chunk, layout, chunk_bytes, total_bytes, xxh3, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return cls(session, prepared, contents)

    async def run(self, in_flight: int) -> float:
        dataset_id = uuid.uuid4()
        rows = iter(self._rows)

        async def worker() -> None:
            for data, checksum in rows:
                size = len(data)
                signed = checksum - 2**64 if checksum >= 2**63 else checksum
                values = [dataset_id, uuid.uuid4(), FIELD, 0, 1, size, size, signed, data]
                await self._session.execute(self._prepared.bind(values))

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
