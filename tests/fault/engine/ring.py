"""The ring of three with a dataset on it, and consumers that read it through the relays."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from cassandra import ConsistencyLevel
from fault.engine.checker import Consumer
from fault.engine.samples import Samples

from harness.cassandra.cluster import CassandraCluster
from harness.relay import Relay
from penstock._native import Store

STALL_SLACK = 3
"""Bounds on stalls, recovery and shutdown are three times what they have to be on a quiet machine."""


class EngineRing:
    """What one test has of it: stores and engines that are closed with the test."""

    def __init__(self, cluster: CassandraCluster, keyspace: str, samples: Samples) -> None:
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.samples = samples
        self.keyspace = keyspace
        self._open: list[Store | Consumer] = []

    @property
    def relays(self) -> list[Relay]:
        return self.cluster.relays

    @property
    def config(self) -> dict[str, object]:
        return self.cluster.store_config(self.keyspace)

    def store(self) -> Store:
        self._open.append(store := Store.open(json.dumps(self.config)))
        return store

    def consumer(self, store: Store | None = None, samples: Samples | None = None, **changes: Any) -> Consumer:
        """A consumer of all samples; `changes` are arguments of its engine."""
        samples = samples or self.samples
        self._open.append(consumer := Consumer(samples.engine(store or self.store(), **changes), samples))
        return consumer

    def shape(self, **settings: Any) -> None:
        """The same settings for all relays."""
        for relay in self.relays:
            relay.set(**settings)

    def pace(self, bytes_a_second: float = 24e6) -> None:
        """Keep the consumers from being done before a fault has shown, and the machine from being full."""
        self.shape(rate=bytes_a_second / len(self.relays), delay_ms=1)

    def count(self, counter: str) -> int:
        """The sum of a counter over all relays."""
        return sum(int(getattr(relay.stats(), counter)) for relay in self.relays)

    def close(self) -> None:
        for each in reversed(self._open):
            (each.engine if isinstance(each, Consumer) else each).close()
        self._open.clear()


def spread_to_all_replicas(cluster: CassandraCluster, keyspace: str, samples: Samples) -> None:
    """Read everything from all three: a replica that was too busy for a write gets it now."""
    session = cluster.session
    select = session.prepare(
        f"SELECT * FROM {keyspace}.samples WHERE dataset_id = ? AND object_id = ?", consistency=ConsistencyLevel.ALL
    )
    dataset = UUID(bytes=samples.dataset_id)
    objects = [UUID(bytes=key) for key in samples.object_ids()]
    with ThreadPoolExecutor(8) as threads:
        read = threads.map(lambda key: session.execute(select, (dataset, key)), objects)
        assert all(read)
