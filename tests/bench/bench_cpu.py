"""What a gigabyte costs the client's CPU, from Cassandra to Python: the engine next to two drivers, in turn.

The drivers read the bare column into Python bytes and check nothing. The engine checks every sample and hands over
views of its arena.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import bench_scale
from harness.bench_clients import (
    AcsyllaClient,
    Client,
    ClientProcess,
    EngineClient,
    EngineListClient,
    PythonDriverClient,
    Target,
    Usage,
)
from harness.bench_cluster import BenchCluster
from harness.bench_dataset import BenchDataset
from harness.bench_report import BenchReport
from harness.cassandra.cluster import ONE_NODE, SECURE, Layout
from harness.run import Run

DATASET = BenchDataset(bench_scale.count(3000, quick=1000))
REPETITIONS = bench_scale.count(7, quick=2)
TLS = ", TLS"
# Whole epochs of the engine; the slowest client reads less, its cost is just as plain.
READS = {
    "engine": 2 * DATASET.size,
    "engine, list": 2 * DATASET.size,
    "acsylla": 2 * DATASET.size,
    "cassandra-driver": DATASET.size // 3,
}
CLIENTS: dict[str, Callable[[Target], Client]] = {
    "engine": EngineClient,
    "engine, list": EngineListClient,
    "acsylla": AcsyllaClient,
    "cassandra-driver": PythonDriverClient,
}


def main() -> None:
    run = Run()
    try:
        report = BenchReport("cpu")
        add_figures(report, measure(run, ONE_NODE, report))
        add_figures(report, measure(run, SECURE, report, suffix=TLS), suffix=TLS, is_bound=False)
        report.print()
    finally:
        run.close()


def measure(run: Run, layout: Layout, report: BenchReport, *, suffix: str = "") -> dict[str, list[Usage]]:
    cluster = BenchCluster(run, DATASET, layout=layout)
    cluster.warm()
    cluster.report_warmth(report, suffix=suffix)
    clients = {name: ClientProcess(make, Target.of(cluster)) for name, make in CLIENTS.items()}
    usages: dict[str, list[Usage]] = {name: [] for name in CLIENTS}
    for repetition in range(1 + REPETITIONS):
        for name, client in clients.items():
            usage = client.read(READS[name])
            # The first one also opens connections and fills pools.
            if repetition > 0:
                usages[name].append(usage)
    for client in clients.values():
        client.close()
    cluster.close()
    return usages


def add_figures(
    report: BenchReport, usages: dict[str, list[Usage]], *, suffix: str = "", is_bound: bool = True
) -> None:
    costs = {name: [usage.cpu_per_gigabyte for usage in each] for name, each in usages.items()}
    for name, values in costs.items():
        reach = "<= 0.6" if is_bound and name == "engine" else None
        report.add(f"CPU, {name}{suffix}", values, unit="core-s/GB", reach=reach)
    ratios = [ours / theirs for ours, theirs in zip(costs["engine"], costs["acsylla"], strict=True)]
    report.add(f"engine / acsylla{suffix}", ratios, unit="x", reach="<= 0.5" if is_bound else None)
    for name, each in usages.items():
        report.add(f"rate, {name}{suffix}", [usage.megabytes_per_second for usage in each], unit="MB/s")


if __name__ == "__main__":
    main()
