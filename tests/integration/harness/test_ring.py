"""The ring of three: what other tests rely on when they break it."""

import pytest
from cassandra import ConsistencyLevel

from harness.cassandra.cluster import CassandraCluster
from harness.cassandra.direct import NOT_NOW, DirectConnection
from harness.cassandra.readiness import what_is_missing


def everyone(ring: CassandraCluster, statement: str) -> list[list[dict[str, object]]]:
    """The answer of each node, asked at its own address."""
    answers = []
    for node in ring.nodes:
        with DirectConnection(node.door) as connection:
            answers.append(connection.query(statement))
    return answers


def test_every_node_sees_a_new_keyspace_and_a_new_table_at_once(
    cassandra_ring: CassandraCluster, ring_keyspace: str
) -> None:
    cassandra_ring.session.execute(f"CREATE TABLE {ring_keyspace}.t (id int PRIMARY KEY)")
    find = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{ring_keyspace}'"
    assert everyone(cassandra_ring, find) == [[{"table_name": "t"}]] * 3
    for node in cassandra_ring.nodes:
        with DirectConnection(node.door) as connection:
            connection.query(f"INSERT INTO {ring_keyspace}.t (id) VALUES (1)", consistency=ConsistencyLevel.ALL)


def test_nodes_announce_the_relays_and_clients_go_through_them(cassandra_ring: CassandraCluster) -> None:
    announced = [rows[0]["rpc_address"] for rows in everyone(cassandra_ring, "SELECT rpc_address FROM system.local")]
    assert [f"{address}:{cassandra_ring.port}" for address in announced] == cassandra_ring.contact_points
    assert [relay.endpoint for relay in cassandra_ring.relays] == cassandra_ring.contact_points
    before = [relay.stats().bytes_down for relay in cassandra_ring.relays]
    for relay in cassandra_ring.relays:
        door = cassandra_ring.nodes[0].door
        host, port = relay.address
        with DirectConnection(type(door)(host, port)) as connection:
            assert connection.query("SELECT cluster_name FROM system.local")
    after = [relay.stats().bytes_down for relay in cassandra_ring.relays]
    assert all(now > then for now, then in zip(after, before, strict=True))


def test_killed_node_is_back_and_seen_as_up_by_all_after_restart(
    cassandra_ring: CassandraCluster, ring_keyspace: str
) -> None:
    session = cassandra_ring.session
    session.execute(f"CREATE TABLE {ring_keyspace}.t (id int PRIMARY KEY)")
    victim = cassandra_ring.nodes[1]
    victim.kill()
    assert [node.is_up for node in cassandra_ring.nodes] == [True, False, True]
    with pytest.raises(NOT_NOW):
        DirectConnection(victim.door, seconds=3)
    session.execute(f"INSERT INTO {ring_keyspace}.t (id) VALUES (1)", consistency=ConsistencyLevel.QUORUM)
    victim.restart()
    assert what_is_missing([node.door for node in cassandra_ring.nodes], replication=3) is None


def test_frozen_node_is_noticed_and_restored(cassandra_ring: CassandraCluster) -> None:
    doors = [node.door for node in cassandra_ring.nodes]
    cassandra_ring.nodes[2].freeze()
    with pytest.raises(NOT_NOW):
        DirectConnection(doors[2], seconds=1)
    cassandra_ring.relays[0].set(delay_ms=500)
    cassandra_ring.restore()
    assert what_is_missing(doors, replication=3) is None
    assert all(node.is_up for node in cassandra_ring.nodes)
