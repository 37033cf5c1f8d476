"""LMDB through the engine to a numpy view, against one thread that reads the same bytes with `pread`.

Both read 100 KB samples in a random order from page cache; `pread` fills a buffer of 64 samples that it uses again and
again, and neither decodes nor checks anything. What is compared is bytes a second over whole epochs, side by side.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_dataset import SAMPLE_BYTES, BenchDataset, read_epoch
from harness.bench_report import BenchReport
from penstock._native import Engine, Store

SAMPLES = bench_scale.count(4_096, quick=1_024)
BATCH_SIZE = 64
REPETITIONS = bench_scale.count(9, quick=5)
EPOCHS = 3
SETTLE_SECONDS = 0.1
DATASET = BenchDataset(SAMPLES)


def main() -> None:
    report = BenchReport("local")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with Store.open(f'{{"kind": "lmdb", "path": "{path}"}}') as store:
            write_samples(store, path / "samples")
        with (
            Store.open(f'{{"kind": "lmdb", "path": "{path}"}}') as store,
            DATASET.engine(store, batch_size=BATCH_SIZE, last_batch="drop") as engine,
        ):
            epochs = iter(range(10_000))
            plain, through_engine, costs = [], [], []
            for repetition in range(REPETITIONS + 1):
                # The engine reads the next epoch ahead: not while the other one is timed.
                time.sleep(SETTLE_SECONDS)
                plain_rate = read_plainly(path / "samples", seed=repetition)
                rate, cost = read_through(engine, epochs)
                # The first round fills page cache and arena.
                if repetition > 0:
                    plain.append(plain_rate)
                    through_engine.append(rate)
                    costs.append(cost)
    report.add("pread, one thread", [each / 1e9 for each in plain], unit="GB/s")
    report.add("LMDB through the engine", [each / 1e9 for each in through_engine], unit="GB/s")
    report.add("CPU of the process, engine", costs, unit="core-s/GB")
    ratios = [ours / theirs for ours, theirs in zip(through_engine, plain, strict=True)]
    report.add("engine / pread", ratios, unit="x", reach=">= 0.8")
    report.print()


def write_samples(store: Store, file: Path) -> None:
    """The same samples into a store and, end to end, into a file."""
    DATASET.write(store)
    with file.open("wb") as target:
        target.writelines(DATASET.content(number) for number in range(SAMPLES))


def read_plainly(file: Path, *, seed: int) -> float:
    """Bytes a second."""
    buffer = memoryview(bytearray(BATCH_SIZE * SAMPLE_BYTES))
    slots = [buffer[start : start + SAMPLE_BYTES] for start in range(0, len(buffer), SAMPLE_BYTES)]
    order = random.Random(seed).sample(range(SAMPLES), SAMPLES)
    descriptor = os.open(file, os.O_RDONLY)
    started = time.perf_counter()
    for _ in range(EPOCHS):
        for place, number in enumerate(order):
            count = os.preadv(descriptor, [slots[place % BATCH_SIZE]], number * SAMPLE_BYTES)
            assert count == SAMPLE_BYTES
    seconds = time.perf_counter() - started
    os.close(descriptor)
    return EPOCHS * SAMPLES * SAMPLE_BYTES / seconds


def read_through(engine: Engine, epochs: Any) -> tuple[float, float]:
    """Bytes a second, and seconds of CPU for each GB."""
    # What was read ahead, before the clock starts, does not count.
    total = -engine.stats()["held_bytes"]
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(EPOCHS):
        total += read_epoch(engine, next(epochs))
    seconds = time.perf_counter() - started
    return total / seconds, (time.process_time() - cpu) / total * 1e9


if __name__ == "__main__":
    main()
