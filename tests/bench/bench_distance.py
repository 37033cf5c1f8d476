"""Distance does not matter: the rate of the same link at 20 and at 150 ms against 0 ms, with nothing set by hand.

Every distance opens its own store in every repetition. On it an engine first asks for one sample: the connections
through which the store was opened are there by then, what opening them takes is not in that figure. Then another
engine takes all that it can get. It has to find its window anew, and the first seconds in which it does so are not
counted; more lanes may be open by then than at the start, because they belong to the store.
"""

import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_dataset import BenchDataset
from harness.bench_link import FAR_MS, BenchLink, steady_rate
from harness.bench_report import BenchReport
from harness.run import Run
from penstock._native import Store

DATASET = BenchDataset(bench_scale.count(3000, quick=1500))
REPETITIONS = bench_scale.count(5, quick=1)
NEAR_MS = 20
SKIP_SECONDS = 3.0
SECONDS = bench_scale.count(4, quick=2)


def main() -> None:
    run = Run()
    try:
        link = BenchLink(run, DATASET)
        report = BenchReport("distance")
        measure(link, report)
        report.print()
    finally:
        run.close()


def measure(link: BenchLink, report: BenchReport) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    firsts: dict[int, list[float]] = defaultdict(list)
    for _ in range(REPETITIONS):
        for round_trip_ms in (0, NEAR_MS, FAR_MS):
            link.set_round_trip(round_trip_ms)
            with link.open_store() as store:
                if round_trip_ms:
                    firsts[round_trip_ms].append(first_sample_seconds(store) / (round_trip_ms / 1e3))
                rates[f"{round_trip_ms} ms"].append(rate(store))
        with link.open_store(lanes=1) as store:
            # It has nothing to find, so it needs no time for it.
            rates[f"{FAR_MS} ms, one connection"].append(rate(store, skip_seconds=1.0))
    link.end(report)
    for name, values in rates.items():
        report.add(f"rate at {name}", [each / 1e6 for each in values], unit="MB/s")
    for name, values in list(rates.items())[1:]:
        # The last one is there to show that distance can be seen on this link.
        reach = "< 0.97" if name.endswith("one connection") else ">= 0.97"
        ratios = [far / near for far, near in zip(values, rates["0 ms"], strict=True)]
        report.add(f"{name} / 0 ms", ratios, unit="x", reach=reach)
    for round_trip_ms, round_trips in firsts.items():
        report.add(f"first sample at {round_trip_ms} ms", round_trips, unit="round trips", reach="<= 3")


def rate(store: Store, *, skip_seconds: float = SKIP_SECONDS) -> float:
    with DATASET.engine(store) as engine:
        return steady_rate(engine, skip_seconds=skip_seconds, seconds=SECONDS)


def first_sample_seconds(store: Store) -> float:
    parts = DATASET.parts
    started = time.monotonic()
    with DATASET.engine(store, parts=parts, batch_size=1) as engine:
        engine.start_epoch(0)
        engine.next_batch()
        return time.monotonic() - started


if __name__ == "__main__":
    main()
