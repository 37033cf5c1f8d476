"""A Cassandra for benchmarks: full JIT, loaded once, and warm before anything is measured."""

import json
from collections.abc import Callable
from dataclasses import replace

from harness.bench_dataset import BenchDataset, read_epoch
from harness.bench_report import BenchReport
from harness.bench_scale import IS_QUICK
from harness.cassandra.cluster import ONE_NODE, CassandraCluster, Layout
from harness.run import Run
from penstock._native import Store
from penstock_server.store.cql_schema import migration_statements

# Of all nodes: a small heap is collected often while hundreds of megabytes a second are read, and the node stands still
# for it.
_HEAP_MIB = 4096
_WINDOW_READS = 20_000
_AGREES_WITHIN = 0.05
# Two windows may agree on a step of the way: its cost a read falls over the first 200 k of them, to a quarter or less.
_LEAST_WINDOWS = 10
_MOST_WINDOWS = 25


class BenchCluster:
    """A cluster with Penstock's tables in one keyspace, and a dataset in them."""

    def __init__(self, run: Run, dataset: BenchDataset, *, layout: Layout = ONE_NODE) -> None:
        self.dataset = dataset
        # Between the last two windows; all of it, before there are two.
        self._last_change = 1.0
        layout = replace(layout, has_full_jit=True, heap_mib=_HEAP_MIB // layout.size)
        self.cassandra = CassandraCluster(run, layout)
        self.keyspace = self.cassandra.create_keyspace()
        for statement in migration_statements(self.keyspace):
            self.cassandra.session.execute(statement)
        with self.open_store() as store:
            dataset.write(store)

    def open_store(self, **changes: object) -> Store:
        return Store.open(json.dumps(self.cassandra.store_config(self.keyspace) | changes))

    def warm(self) -> None:
        """Reads until two windows cost the server the same CPU: its compiler needs some 100 k reads to get there."""
        epochs = 1 if IS_QUICK else -(-_WINDOW_READS // self.dataset.size)
        with self.open_store() as store, self.dataset.engine(store, prefetch_next_epoch=False) as engine:

            def read_window() -> None:
                for _ in range(epochs):
                    read_epoch(engine, 0)

            least, most = (1, 2) if IS_QUICK else (_LEAST_WINDOWS, _MOST_WINDOWS)
            self.warm_with(read_window, least_windows=least, most_windows=most)

    def warm_with(self, use: Callable[[], None], *, least_windows: int = 1, most_windows: int) -> None:
        """Uses it until two windows cost the server the same CPU; after the most windows it is taken as it is."""
        costs: list[float] = []
        while len(costs) < most_windows:
            before = self.server_cpu_seconds()
            use()
            costs.append(self.server_cpu_seconds() - before)
            if len(costs) > 1:
                self._last_change = abs(costs[-1] / costs[-2] - 1)
                if self._last_change <= _AGREES_WITHIN and len(costs) >= least_windows:
                    return

    def report_warmth(self, report: BenchReport, *, suffix: str = "") -> None:
        """Figures of a server that still changes are not what they will be: the table has to say so."""
        name = f"warm-up, change of the server's CPU at the end{suffix}"
        report.add(name, 100 * self._last_change, unit="%", reach=f"<= {100 * _AGREES_WITHIN:.0f}")

    def server_cpu_seconds(self) -> float:
        return sum(node.process.cpu_seconds for node in self.cassandra.nodes)

    def close(self) -> None:
        self.cassandra.close()
