"""The native store on a ring of three nodes whose network and nodes misbehave."""

import json
import os
import time
from collections.abc import Iterator

import pytest

from harness.cassandra.cluster import CassandraCluster
from penstock._native import Store

from .conftest import create_tables

pytestmark = pytest.mark.timeout(900)

SAMPLES = 300
SAMPLE_BYTES = 20_000
# The driver gives a node up that takes connections and says nothing after ten seconds; three times slack.
OPENING_SECONDS = 40


@pytest.fixture
def store(cassandra_ring: CassandraCluster, ring_keyspace: str) -> Iterator[Store]:
    create_tables(cassandra_ring, ring_keyspace)
    with Store.open(json.dumps(cassandra_ring.store_config(ring_keyspace))) as store:
        yield store


@pytest.fixture
def written(store: Store) -> tuple[bytes, dict[bytes, bytes]]:
    """A dataset and what was written to it."""
    dataset_id = os.urandom(16)
    content = {os.urandom(16): os.urandom(SAMPLE_BYTES) for _ in range(SAMPLES)}
    store.write("samples", dataset_id, [(key, [("image", data)]) for key, data in content.items()])
    return dataset_id, content


def _read_all(store: Store, written: tuple[bytes, dict[bytes, bytes]]) -> None:
    dataset_id, content = written
    read = store.read("samples", dataset_id, list(content))
    assert [record and record["image"] for record in read] == list(content.values())


def test_flipped_bits_on_the_way_never_reach_the_reader(
    cassandra_ring: CassandraCluster, store: Store, written: tuple[bytes, dict[bytes, bytes]]
) -> None:
    for relay in cassandra_ring.relays:
        relay.set(flip_mean_bytes=400_000, seed=7)
    for _ in range(3):
        _read_all(store, written)
    flips = sum(relay.stats().flips for relay in cassandra_ring.relays)
    assert flips > 10
    # Not all of them: an answer may have two, or nobody waits for it any more.
    assert store.counters()["damaged"] > flips / 2


def test_reset_connections_lose_nothing(
    cassandra_ring: CassandraCluster, store: Store, written: tuple[bytes, dict[bytes, bytes]]
) -> None:
    for relay in cassandra_ring.relays:
        relay.set(reset_mean_bytes=3_000_000, seed=3)
    for _ in range(3):
        _read_all(store, written)
    assert sum(relay.stats().resets for relay in cassandra_ring.relays) > 0


def test_a_killed_node_loses_no_read_and_no_write(
    cassandra_ring: CassandraCluster, store: Store, written: tuple[bytes, dict[bytes, bytes]]
) -> None:
    cassandra_ring.nodes[1].kill()
    _read_all(store, written)
    dataset_id, _ = written
    late = os.urandom(16)
    store.write("samples", dataset_id, [(late, [("image", b"late")])])
    assert store.read("samples", dataset_id, [late]) == [{"image": b"late"}]


def test_a_frozen_node_does_not_keep_a_store_from_opening(
    cassandra_ring: CassandraCluster, ring_keyspace: str, store: Store, written: tuple[bytes, dict[bytes, bytes]]
) -> None:
    config = cassandra_ring.store_config(ring_keyspace)
    victim, away = cassandra_ring.nodes[1], cassandra_ring.contact_points[1]
    victim.freeze()
    # Whether it is the first to be asked or is not among the contact points at all, and only found as one of the ring.
    others = [point for point in cassandra_ring.contact_points if point != away]
    for contact_points in ([away, *others], others):
        started = time.monotonic()
        with Store.open(json.dumps(config | {"contact_points": contact_points})) as opened:
            assert time.monotonic() - started < OPENING_SECONDS
            _read_all(opened, written)
    victim.thaw()
    _read_all(store, written)
