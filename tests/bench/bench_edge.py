"""No bubble between epochs at 150 ms: the largest gap around an edge, in batch times."""

import statistics
import sys
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_dataset import Arrival, BenchDataset, arrivals
from harness.bench_link import FAR_MS, BenchLink
from harness.bench_report import BenchReport
from harness.run import Run

# Whole batches only: a short last one comes sooner and would flatter the edge.
DATASET = BenchDataset(64 * bench_scale.count(48, quick=24))
RAMP_EPOCHS = 3
EDGES = bench_scale.count(15, quick=3)


def main() -> None:
    run = Run()
    try:
        link = BenchLink(run, DATASET)
        report = BenchReport("edge")
        measure(link, report)
        report.print()
    finally:
        run.close()


def measure(link: BenchLink, report: BenchReport) -> None:
    link.set_round_trip(FAR_MS)
    with link.open_store() as store, DATASET.engine(store) as engine:
        steps = engine.steps()
        seen = list(islice(arrivals(engine), (RAMP_EPOCHS + EDGES + 1) * steps))
    seen = seen[RAMP_EPOCHS * steps :]
    inside = [gap for start in range(0, len(seen), steps) for gap in gaps(seen[start + 1 : start + steps - 1])]
    batch_seconds = statistics.median(inside)
    edges = [max(gaps(seen[start - 2 : start + 2])) / batch_seconds for start in range(steps, len(seen), steps)]
    link.end(report)
    report.add("batch time inside an epoch", [1e3 * gap for gap in inside], unit="ms")
    report.add("largest gap at an edge / batch time", edges, unit="x", reach="<= 2")
    report.add("largest gap of all edges / batch time", max(edges), unit="x")
    # No edge has a part in this one: if it is as large, the machine stalled.
    report.add("largest gap inside epochs / batch time", max(inside) / batch_seconds, unit="x")


def gaps(seen: Sequence[Arrival]) -> list[float]:
    return [after.at - before.at for before, after in pairwise(seen)]


if __name__ == "__main__":
    main()
