"""E3 with services: memory, LMDB and a real Cassandra behave alike."""

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from integration.store.conftest import create_tables
from property.stores.machine import DATASETS, TABLES, StoreMachine

from harness.cassandra.cluster import CassandraCluster
from harness.soak import repetitions
from penstock._native import Store

EXAMPLES = repetitions(10, 10_000)
EXAMPLES_A_ROUND = 100
# A real Cassandra takes its time for an example: after this no new round is begun, and the number done is said.
MOST_SECONDS = 1_800.0

_numbers = itertools.count()


@pytest.mark.timeout(7200)
def test_memory_lmdb_and_cassandra_answer_alike(
    cassandra: CassandraCluster, keyspace: str, record_property: Callable[[str, object], None]
) -> None:
    create_tables(cassandra, keyspace)
    cql = json.dumps(cassandra.store_config(keyspace))

    class AllStores(StoreMachine):
        def openers(self) -> dict[str, Callable[[], Store]]:
            self.folder = tempfile.TemporaryDirectory()
            configs: dict[str, dict[str, object]] = {
                "memory": {"kind": "memory", "name": f"agreement-{next(_numbers)}"},
                "lmdb": {"kind": "lmdb", "path": self.folder.name},
            }
            openers: dict[str, Callable[[], Store]] = {
                name: partial(Store.open, json.dumps(config)) for name, config in configs.items()
            }
            with Store.open(cql) as store:
                empty(store)
            return openers | {"cql": partial(Store.open, cql)}

        def teardown(self) -> None:
            super().teardown()
            self.folder.cleanup()

    started, done = time.monotonic(), 0
    while done < EXAMPLES and time.monotonic() < started + MOST_SECONDS:
        count = min(EXAMPLES - done, EXAMPLES_A_ROUND)
        run_state_machine_as_test(
            # Each round has its own examples, the same in every run.
            seed(done)(AllStores),
            settings=settings(
                max_examples=count,
                stateful_step_count=25,
                deadline=None,
                database=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
        done += count
    record_property("examples", done)
    print(f"E3: {done} of {EXAMPLES} examples on memory, LMDB and Cassandra in {time.monotonic() - started:.0f} s")
    assert done >= repetitions(10, 1_000)


def empty(store: Store) -> None:
    """One keyspace serves all examples: a new one for each would take longer than the example."""
    for table in TABLES:
        for dataset in DATASETS:
            store.delete(table, dataset, store.scan(table, dataset))
