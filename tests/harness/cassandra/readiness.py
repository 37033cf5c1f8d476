"""When a cluster is really ready: asked at each node's own address, with a table that is written and read everywhere.

A port that answers is not enough. A ring whose members have not all heard of each other takes a CREATE KEYSPACE and
then says on the other nodes that the keyspace does not exist.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from cassandra import ConsistencyLevel

from harness.cassandra.direct import NOT_NOW, DirectConnection, Door
from harness.errors import HarnessError

_PROBE = "penstock_probe"
# Replicas that must answer a probe, by the number of nodes that are up.
_LEVELS = {1: ConsistencyLevel.ONE, 2: ConsistencyLevel.TWO, 3: ConsistencyLevel.THREE}


def wait_until_answering(doors: Sequence[Door], *, seconds: float, check_alive: Callable[[], None]) -> None:
    """Every node takes a login; until then the machine is merely slow, and starting anew would make it slower."""
    deadline = time.monotonic() + seconds
    for door in doors:
        while (problem := _login_problem(door)) is not None:
            check_alive()
            if time.monotonic() > deadline:
                raise HarnessError(f"{door.endpoint} does not answer after {seconds:.0f} s: {problem}")
            time.sleep(0.25)


def _login_problem(door: Door) -> str | None:
    try:
        DirectConnection(door).close()
    except NOT_NOW as error:
        return f"{type(error).__name__}: {error}"
    return None


def wait_until_ready(
    doors: Sequence[Door], *, replication: int, seconds: float, check_alive: Callable[[], None], passes: int = 2
) -> None:
    """Return when `passes` checks in a row, one second apart, found nothing missing."""
    started = time.monotonic()
    good = 0
    while True:
        check_alive()
        missing = what_is_missing(doors, replication=replication)
        good = good + 1 if missing is None else 0
        if good >= passes:
            return
        if time.monotonic() - started > seconds:
            raise HarnessError(
                f"Cassandra was not ready after {seconds:.0f} s: {missing or 'it was only for a moment'}"
            )
        time.sleep(1.0 if missing is None else 0.25)


def what_is_missing(doors: Sequence[Door], *, replication: int) -> str | None:
    """None when every one of these nodes knows, and can reach, every other one."""
    with ExitStack() as stack:
        try:
            nodes = [stack.enter_context(DirectConnection(door)) for door in doors]
            return (
                _missing_peers(doors, nodes)
                or schema_difference(doors, nodes)
                or _missing_probe(doors, nodes, replication)
                or _failing_probe(doors, nodes)
            )
        except NOT_NOW as error:
            return f"{type(error).__name__}: {error}"


def schema_difference(doors: Sequence[Door], nodes: Sequence[DirectConnection]) -> str | None:
    versions = {}
    for door, node in zip(doors, nodes, strict=True):
        [local] = node.query("SELECT schema_version FROM system.local")
        versions[door.address] = local["schema_version"]
    if len(set(versions.values())) == 1:
        return None
    return "the nodes have different schemas: " + ", ".join(f"{name} {value}" for name, value in versions.items())


def _missing_peers(doors: Sequence[Door], nodes: Sequence[DirectConnection]) -> str | None:
    ids = []
    for node in nodes:
        [local] = node.query("SELECT host_id FROM system.local")
        ids.append(local["host_id"])
    for door, node, own_id in zip(doors, nodes, ids, strict=True):
        peers = {row["host_id"] for row in node.query("SELECT peer, host_id FROM system.peers_v2")}
        unknown = [other.address for other, host_id in zip(doors, ids, strict=True) if host_id not in {own_id, *peers}]
        if unknown:
            return f"{door.address} does not know {', '.join(unknown)} yet"
    return None


def _missing_probe(doors: Sequence[Door], nodes: Sequence[DirectConnection], replication: int) -> str | None:
    find = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{_PROBE}'"
    without = [door.address for door, node in zip(doors, nodes, strict=True) if not node.query(find)]
    if doors[0].address in without:
        nodes[0].query(create_keyspace_statement(_PROBE, replication=replication), seconds=30)
        nodes[0].query(f"CREATE TABLE IF NOT EXISTS {_PROBE}.seen (node text PRIMARY KEY, at bigint)", seconds=30)
        return "the probe table has just been made"
    return f"{', '.join(without)} cannot see the probe table yet" if without else None


def _failing_probe(doors: Sequence[Door], nodes: Sequence[DirectConnection]) -> str | None:
    """Each node in turn coordinates a write and a read that all nodes must answer: so it sees all of them as up."""
    level = _LEVELS[len(nodes)]
    for door, node in zip(doors, nodes, strict=True):
        stamp = time.monotonic_ns()
        where = f"WHERE node = '{door.address}'"
        node.query(f"INSERT INTO {_PROBE}.seen (node, at) VALUES ('{door.address}', {stamp})", consistency=level)
        for other, reader in zip(doors, nodes, strict=True):
            rows = reader.query(f"SELECT at FROM {_PROBE}.seen {where}", consistency=level)
            if [row["at"] for row in rows] != [stamp]:
                return f"{other.address} does not read what {door.address} wrote"
    return None


def create_keyspace_statement(name: str, *, replication: int) -> str:
    options = f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {replication}}}"
    return f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {options}"
