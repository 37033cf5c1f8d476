"""A Cassandra for benchmarks: full JIT, loaded once, and warm before anything is measured."""

import json
import sys
from dataclasses import replace

from harness.bench_dataset import BenchDataset, read_epoch
from harness.bench_scale import IS_QUICK
from harness.cassandra.cluster import ONE_NODE, CassandraCluster, Layout
from harness.run import Run
from penstock._native import Store
from penstock_server.store.cql_schema import migration_statements

_WINDOW_READS = 20_000
_AGREES_WITHIN = 0.05
_MOST_WINDOWS = 15


class BenchCluster:
    """A cluster with Penstock's tables in one keyspace, and a dataset in them."""

    def __init__(self, run: Run, dataset: BenchDataset, *, layout: Layout = ONE_NODE) -> None:
        self.dataset = dataset
        self.cassandra = CassandraCluster(run, replace(layout, has_full_jit=True, heap_mib=1024))
        self.keyspace = self.cassandra.create_keyspace()
        for statement in migration_statements(self.keyspace):
            self.cassandra.session.execute(statement)
        with self.open_store() as store:
            dataset.write(store)

    def open_store(self, **changes: object) -> Store:
        return Store.open(json.dumps(self.cassandra.store_config(self.keyspace) | changes))

    def warm(self) -> None:
        """Reads until two windows cost the server the same CPU: its compiler needs some 100 k reads to get there."""
        costs: list[float] = []
        with self.open_store() as store, self.dataset.engine(store, prefetch_next_epoch=False) as engine:
            epochs = -(-_WINDOW_READS // self.dataset.size)
            while len(costs) < (2 if IS_QUICK else _MOST_WINDOWS):
                before = self.server_cpu_seconds()
                for _ in range(1 if IS_QUICK else epochs):
                    read_epoch(engine, 0)
                costs.append(self.server_cpu_seconds() - before)
                if len(costs) > 1 and abs(costs[-1] / costs[-2] - 1) < _AGREES_WITHIN:
                    return
        sys.stderr.write(f"bench: the server is not warm, CPU seconds a window: {[round(cost, 2) for cost in costs]}\n")

    def server_cpu_seconds(self) -> float:
        return sum(node.process.cpu_seconds for node in self.cassandra.nodes)

    def close(self) -> None:
        self.cassandra.close()
