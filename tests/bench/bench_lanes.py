"""Slow lanes starve themselves and not the batch: whole epochs with a quarter of the lanes slow, against healthy ones.

How many lanes there are the engine says. Which connections they are is seen by what these carry, because some of a
driver session carry no samples. For every trial the slow ones are drawn anew, so that nothing is known of them yet.
"""

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_dataset import Arrival, BenchDataset, arrivals
from harness.bench_link import FAR_MS, BenchLink, rate_of
from harness.bench_report import BenchReport
from harness.machine_cpu import MachineCpu
from harness.run import Run
from penstock._native import Engine

DATASET = BenchDataset(64 * bench_scale.count(32, quick=24))
REPETITIONS = bench_scale.count(7, quick=1)
# More than 300 batches: the 99th percentile of fewer would be about their largest.
EPOCHS = bench_scale.count(10, quick=1)
# In seconds, because what an engine sees of a lane that changed is a matter of time: a lane of a tenth of the rate
# needs two only to hand over what was on its way when it became slow.
SETTLE_SECONDS = bench_scale.count(5, quick=1)
SLOW_SHARE = 0.25
HEALTHY = "healthy"
LATE = "a quarter at 5x delay"
NARROW = "a quarter at 1/10 rate"


def main() -> None:
    run = Run()
    try:
        link = BenchLink(run, DATASET)
        report = BenchReport("lanes")
        measure(link, report)
        report.print()
    finally:
        run.close()


class Epochs:
    """Whole epochs of one engine, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stream = arrivals(engine)
        self.snapshot_ms: list[float] = []

    @property
    def lanes(self) -> int:
        return self._engine.stats()["lanes"]

    def take(self, count: int) -> list[Arrival]:
        return list(islice(self._stream, self._engine.steps() * count))

    def settle(self) -> list[Arrival]:
        """Takes some for the engine to see what has changed, and a snapshot of its stats after each batch."""
        seen: list[Arrival] = []
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            for arrival in islice(self._stream, self._engine.steps()):
                seen.append(arrival)
                self.snapshot_ms.append(self._engine.stats()["snapshot_ms"])
        return seen


@dataclass(frozen=True)
class Trial:
    """Some epochs under one condition; the first arrival is the last before them."""

    seen: Sequence[Arrival]
    cpu_share: float
    slow_share: float
    slow_share_at_end: float
    given_up: int

    @property
    def batch_seconds(self) -> list[float]:
        return [after.at - before.at for before, after in pairwise(self.seen)]

    @property
    def unevenness(self) -> float:
        """p99 / p50 of the batch times; three batches of a hundred are the last of their epoch."""
        p50, p99 = np.percentile(self.batch_seconds, [50, 99])
        return float(p99 / p50)

    @property
    def unevenness_inside(self) -> float:
        """The same, with the p99 of batches that neither begin nor end an epoch."""
        last_step = max(arrival.step for arrival in self.seen)
        is_inside = [0 < after.step < last_step for after in self.seen[1:]]
        p99 = np.percentile(np.compress(is_inside, self.batch_seconds), 99)
        return float(p99 / np.percentile(self.batch_seconds, 50))


def measure(link: BenchLink, report: BenchReport) -> None:
    link.set_round_trip(FAR_MS)
    chooser = random.Random(0)
    trials: dict[str, list[Trial]] = {condition: [] for condition in (HEALTHY, LATE, NARROW)}
    with link.open_store() as store, DATASET.engine(store) as engine:
        epochs = Epochs(engine)
        last = epochs.settle()[-1]
        for _ in range(REPETITIONS):
            for condition, tried in trials.items():
                tried.append(try_out(link, condition, epochs, last, chooser))
                last = tried[-1].seen[-1]
        report.add("lanes", epochs.lanes, unit="")
    link.end(report)
    add_figures(report, trials)
    report.add("native snapshot of the stats", [1e3 * each for each in epochs.snapshot_ms], unit="us", reach="<= 50")


def add_figures(report: BenchReport, trials: dict[str, list[Trial]]) -> None:
    slow = [trial for tried in (trials[LATE], trials[NARROW]) for trial in tried]
    report.add("slow lanes / lanes", [trial.slow_share for trial in slow], unit="x")
    report.add("slow lanes / lanes, at the end of a trial", [trial.slow_share_at_end for trial in slow], unit="x")
    report.add("slow lanes given up by the client", sum(trial.given_up for trial in slow), unit="")
    rates = {condition: [rate_of(trial.seen) for trial in tried] for condition, tried in trials.items()}
    for condition, values in rates.items():
        report.add(f"rate, {condition}", [each / 1e6 for each in values], unit="MB/s")
    for condition in (LATE, NARROW):
        ratios = [ours / healthy for ours, healthy in zip(rates[condition], rates[HEALTHY], strict=True)]
        report.add(f"{condition} / healthy", ratios, unit="x", reach=">= 0.95")
    # Where the cores have nothing left, everything waits for its turn on them: then that is measured.
    every = [trial for tried in trials.values() for trial in tried]
    report.add("CPU of the machine in use", [trial.cpu_share for trial in every], unit="x")
    for condition, tried in trials.items():
        report.add(f"batch time p99 / p50, {condition}", [trial.unevenness for trial in tried], unit="x", reach="<= 2")
        # An epoch ends when its last straggler has come: this says how much of the figure above is that.
        inside = [trial.unevenness_inside for trial in tried]
        report.add(f"the same inside epochs, {condition}", inside, unit="x")


def try_out(link: BenchLink, condition: str, epochs: Epochs, last: Arrival, chooser: random.Random) -> Trial:
    lanes = epochs.lanes
    slow = set() if condition == HEALTHY else a_quarter(carrying(link), lanes, chooser)
    make_slow(link, condition, slow, lanes)
    settling = epochs.settle()
    cpu = MachineCpu()
    measured = epochs.take(EPOCHS)
    cpu_share = cpu.used_share()
    left = slow & set(carrying(link))
    # A client that hung up on slow lanes has fresh ones now: then what that took is part of the figure.
    seen = [settling[-1], *measured] if left == slow else [last, *settling, *measured]
    return Trial(seen, cpu_share, len(slow) / lanes, len(left) / epochs.lanes, len(slow - left))


def a_quarter(carrying: Sequence[int], lanes: int, chooser: random.Random) -> set[int]:
    """Of so many lanes, to the nearest whole number; never none."""
    return set(chooser.sample(carrying, max(1, round(lanes * SLOW_SHARE))))


def make_slow(link: BenchLink, condition: str, slow: set[int], lanes: int) -> None:
    """Lets these connections be slow in the way of the condition, and no others."""
    link.relay.set(
        slow_connections=sorted(slow),
        slow_delay_factor=5.0 if condition == LATE else None,
        slow_rate=link.rate / lanes / 10 if condition == NARROW else None,
    )


def carrying(link: BenchLink) -> list[int]:
    """The relay's numbers of the connections that carry samples."""
    carried = {int(str(each["index"])): int(str(each["bytes_down"])) for each in link.relay.stats().connections}
    return [index for index, size_bytes in carried.items() if size_bytes > DATASET.sample_bytes]


if __name__ == "__main__":
    main()
