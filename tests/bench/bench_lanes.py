"""Slow lanes starve themselves and not the batch: whole epochs with a quarter of the lanes slow, against healthy ones.

Every second connection of a driver session may be its control connection, which carries nothing: which ones are
lanes is seen by what they carry, and the relay's "every k-th is slow" is set to hit a quarter of those.
"""

import sys
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
from harness.run import Run
from penstock._native import Engine

DATASET = BenchDataset(64 * bench_scale.count(32, quick=24))
REPETITIONS = bench_scale.count(7, quick=1)
EPOCHS = bench_scale.count(3, quick=1)
SETTLE_EPOCHS = 3
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
        self._stream = arrivals(engine)
        self._steps = engine.steps()

    def take(self, count: int) -> list[Arrival]:
        return list(islice(self._stream, self._steps * count))


@dataclass(frozen=True)
class Trial:
    """Some epochs under one condition; the first arrival is the last before them."""

    seen: Sequence[Arrival]
    slow_share: float
    given_up: int

    @property
    def batch_seconds(self) -> list[float]:
        return [after.at - before.at for before, after in pairwise(self.seen)]

    @property
    def unevenness(self) -> float:
        """p99 / p50 of the batch times; three batches of a hundred are the last of their epoch."""
        p50, p99 = np.percentile(self.batch_seconds, [50, 99])
        return float(p99 / p50)


def measure(link: BenchLink, report: BenchReport) -> None:
    link.set_round_trip(FAR_MS)
    trials: dict[str, list[Trial]] = {condition: [] for condition in (HEALTHY, LATE, NARROW)}
    with link.open_store() as store, DATASET.engine(store) as engine:
        epochs = Epochs(engine)
        last = epochs.take(SETTLE_EPOCHS)[-1]
        for _ in range(REPETITIONS):
            for condition, tried in trials.items():
                tried.append(try_out(link, condition, epochs, last))
                last = tried[-1].seen[-1]
        report.add("lanes", engine.stats()["lanes"], unit="")
    link.report(report)
    slow = [trial for tried in (trials[LATE], trials[NARROW]) for trial in tried]
    report.add("slow lanes / lanes", [trial.slow_share for trial in slow], unit="x")
    report.add("slow lanes given up by the client", sum(trial.given_up for trial in slow), unit="")
    rates = {condition: [rate_of(trial.seen) for trial in tried] for condition, tried in trials.items()}
    for condition, values in rates.items():
        report.add(f"rate, {condition}", [each / 1e6 for each in values], unit="MB/s")
    for condition in (LATE, NARROW):
        ratios = [ours / healthy for ours, healthy in zip(rates[condition], rates[HEALTHY], strict=True)]
        report.add(f"{condition} / healthy", ratios, unit="x", reach=">= 0.95")
    for condition, tried in trials.items():
        report.add(f"batch time p99 / p50, {condition}", [trial.unevenness for trial in tried], unit="x", reach="<= 2")


def try_out(link: BenchLink, condition: str, epochs: Epochs, last: Arrival) -> Trial:
    slow = make_slow(link, condition)
    slow_share = len(slow) / len(lanes_of(link))
    settling, measured = epochs.take(SETTLE_EPOCHS), epochs.take(EPOCHS)
    lost = slow - set(lanes_of(link))
    # A client that hung up on slow lanes has fresh ones now: then what that took is part of the figure.
    seen = [last, *settling, *measured] if lost else [settling[-1], *measured]
    return Trial(seen, slow_share, len(lost))


def make_slow(link: BenchLink, condition: str) -> set[int]:
    """Sets the relay, and returns the lanes that are slow now."""
    link.relay.set(slow_every=None, slow_delay_factor=None, slow_rate=None)
    if condition == HEALTHY:
        return set()
    lanes = lanes_of(link)
    every = every_for_a_quarter(lanes)
    if condition == LATE:
        link.relay.set(slow_every=every, slow_delay_factor=5.0)
    else:
        link.relay.set(slow_every=every, slow_rate=link.rate / len(lanes) / 10)
    return slow_ones(lanes, every)


def lanes_of(link: BenchLink) -> list[int]:
    """The relay's numbers of the connections that carry samples."""
    carried = {int(str(each["index"])): int(str(each["bytes_down"])) for each in link.relay.stats().connections}
    return [index for index, size_bytes in carried.items() if size_bytes > DATASET.sample_bytes]


def slow_ones(lanes: list[int], every: int) -> set[int]:
    """Those that the relay's `slow_every` means."""
    return {index for index in lanes if index % every == every - 1}


def every_for_a_quarter(lanes: list[int]) -> int:
    def distance(every: int) -> float:
        return abs(len(slow_ones(lanes, every)) / len(lanes) - SLOW_SHARE)

    return min(range(2, 2 + max(lanes)), key=distance)


if __name__ == "__main__":
    main()
