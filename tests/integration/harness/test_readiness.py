"""A cluster that is not whole must not pass for one."""

import pytest

from harness.cassandra.cluster import CassandraCluster
from harness.cassandra.direct import Door
from harness.cassandra.readiness import wait_until_ready, what_is_missing
from harness.errors import HarnessError


def test_two_lone_nodes_are_not_a_cluster(cassandra: CassandraCluster, cassandra_secure: CassandraCluster) -> None:
    doors = [cassandra.nodes[0].door, cassandra_secure.nodes[0].door]
    missing = what_is_missing(doors, replication=2)
    assert missing is not None
    assert f"{doors[0].address} does not know {doors[1].address} yet" in missing


def test_waiting_ends_with_what_is_missing(cassandra: CassandraCluster) -> None:
    door = cassandra.nodes[0].door
    silent = Door(door.address, cassandra.nodes[0].settings.storage_port + 1)
    with pytest.raises(HarnessError, match=r"not ready after 1 s: .*[Rr]efused"):
        wait_until_ready([door, silent], replication=1, seconds=1, check_alive=lambda: None)
