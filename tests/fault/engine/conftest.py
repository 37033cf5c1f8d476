"""One dataset on the ring for all tests of this folder, written once."""

import json
from collections.abc import Iterator

import pytest
from fault.engine.life_on_ring import LifeOnRing
from fault.engine.ring import EngineRing, spread_to_all_replicas
from fault.engine.samples import Samples
from integration.store.conftest import create_tables

from harness.cassandra.cluster import CassandraCluster
from penstock._native import Store

SAMPLES = 3_000


@pytest.fixture(scope="session")
def written(cassandra_ring_session: CassandraCluster) -> tuple[str, Samples]:
    """A keyspace with three replicas, and the samples that all of them have."""
    cluster = cassandra_ring_session
    keyspace = cluster.create_keyspace()
    create_tables(cluster, keyspace)
    samples = Samples(SAMPLES, seed=4)
    with Store.open(json.dumps(cluster.store_config(keyspace))) as store:
        samples.write(store)
    spread_to_all_replicas(cluster, keyspace, samples)
    return keyspace, samples


@pytest.fixture
def ring(cassandra_ring: CassandraCluster, written: tuple[str, Samples]) -> Iterator[EngineRing]:
    keyspace, samples = written
    ring = EngineRing(cassandra_ring, keyspace, samples)
    yield ring
    ring.close()


@pytest.fixture(scope="session")
def keyspace_with_samples(cassandra_ring_session: CassandraCluster) -> str:
    """A dataset with its catalog's side in memory, for whole loaders."""
    cluster = cassandra_ring_session
    cluster.restore()
    keyspace = cluster.create_keyspace()
    create_tables(cluster, keyspace)
    LifeOnRing(cluster.store_config(keyspace), []).training().write()
    return keyspace


@pytest.fixture
def life(cassandra_ring: CassandraCluster, keyspace_with_samples: str) -> LifeOnRing:
    """What processes need to make loaders on the ring."""
    addresses = [relay.control_address for relay in cassandra_ring.relays]
    return LifeOnRing(cassandra_ring.store_config(keyspace_with_samples), addresses)
