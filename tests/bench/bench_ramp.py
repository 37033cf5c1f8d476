"""The first ten seconds at 150 ms on an open client: how soon the link is full, and how far the window shoots over."""

import statistics
import sys
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_dataset import BenchDataset
from harness.bench_link import FAR_MS, BenchLink, first_seconds
from harness.bench_report import BenchReport
from harness.run import Run
from penstock._native import Engine

DATASET = BenchDataset(bench_scale.count(3000, quick=1500))
REPETITIONS = bench_scale.count(7, quick=1)
SECONDS = 10.0
# What the window holds in these last seconds is what it has found.
STEADY_SECONDS = 4.0
LOOK_EVERY_SECONDS = 0.02
RATE_OVER_SECONDS = 0.25
# A burst is over sooner; one stall of the machine later on is none of the ramp.
LASTING_SECONDS = (1.0, 1.0)
FULL = 0.8


@dataclass(frozen=True)
class Look:
    """The state of engine and relay at one moment."""

    at: float
    inflight_bytes: int
    peak_inflight_bytes: int
    relay_bytes: int
    relay_queued_bytes: int


def main() -> None:
    run = Run()
    try:
        link = BenchLink(run, DATASET)
        report = BenchReport("ramp")
        measure(link, report)
        report.print()
    finally:
        run.close()


def measure(link: BenchLink, report: BenchReport) -> None:
    link.set_round_trip(FAR_MS)
    all_looks = [ramp(link) for _ in range(REPETITIONS)]
    link.end(report)
    steady = [statistics.median(look.inflight_bytes for look in last_seconds(looks)) for looks in all_looks]
    report.add("in flight, steady", [each / 1e6 for each in steady], unit="MB")
    product = link.rate * FAR_MS / 1e3
    report.add("in flight, steady / product", [each / product for each in steady], unit="x")
    peaks = [looks[-1].peak_inflight_bytes / each for looks, each in zip(all_looks, steady, strict=True)]
    report.add("in flight, peak / steady", peaks, unit="x", reach="<= 1.25")
    report.add("inside the relay, peak / steady", [relay_peak(looks) for looks in all_looks], unit="x")
    times = [full_after(looks, FULL * link.rate) for looks in all_looks]
    report.add(f"time to {FULL:.0%} of the link", times, unit="s", reach="<= 3")


def ramp(link: BenchLink) -> list[Look]:
    """Looks at the first seconds of an engine; times are since it was asked for its first batch."""
    looks: list[Look] = []
    has_ended = threading.Event()
    with link.open_store() as store, DATASET.engine(store) as engine:
        already = link.relay.stats().bytes_down
        watcher = threading.Thread(target=watch, args=(link, engine, already, looks, has_ended))
        watcher.start()
        for _ in first_seconds(engine, SECONDS):
            pass
        has_ended.set()
        watcher.join()
    return looks


def watch(link: BenchLink, engine: Engine, already: int, looks: list[Look], has_ended: threading.Event) -> None:
    started = time.monotonic()
    while not has_ended.wait(LOOK_EVERY_SECONDS):
        stats = engine.stats()
        relay = link.relay.stats()
        looks.append(
            Look(
                time.monotonic() - started,
                stats["inflight_bytes"],
                stats["peak_inflight_bytes"],
                relay.bytes_down - already,
                relay.queued_bytes,
            )
        )


def last_seconds(looks: list[Look]) -> list[Look]:
    return [look for look in looks if look.at > looks[-1].at - STEADY_SECONDS]


def relay_peak(looks: list[Look]) -> float:
    steady = statistics.median(look.relay_queued_bytes for look in last_seconds(looks))
    return max(look.relay_queued_bytes for look in looks) / steady


def full_after(looks: list[Look], rate: float) -> float:
    """When the relay had handed on this rate over a quarter of a second, and went on so for each of two seconds."""
    times = [look.at for look in looks]
    for index in range(len(looks)):
        ends = [index]
        for seconds in (RATE_OVER_SECONDS, *LASTING_SECONDS):
            start = looks[ends[-1]]
            end = bisect_left(times, start.at + seconds)
            if end == len(looks) or looks[end].relay_bytes - start.relay_bytes < rate * (times[end] - start.at):
                break
            ends.append(end)
        else:
            return times[ends[1]]
    return SECONDS


if __name__ == "__main__":
    main()
