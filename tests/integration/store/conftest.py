"""A project's tables in a fresh keyspace, made from the migrations as the server makes them."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cassandra.cluster import CassandraCluster
from penstock._native import Store

MIGRATIONS = Path(__file__).parents[3] / "migrations" / "cql"

OpenStore = Callable[..., Store]


def create_tables(cluster: CassandraCluster, keyspace: str) -> None:
    for file in sorted(MIGRATIONS.glob("*.cql")):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("--")]
        for statement in "\n".join(lines).replace("{keyspace}", keyspace).split(";\n"):
            if statement.strip():
                cluster.session.execute(statement.strip().removesuffix(";"))


@pytest.fixture(scope="session")
def tables(cassandra: CassandraCluster) -> str:
    """The name of a keyspace with Penstock's tables on the single node, one for all: each test has its own dataset."""
    keyspace = cassandra.create_keyspace()
    create_tables(cassandra, keyspace)
    return keyspace


@pytest.fixture
def open_store(cassandra: CassandraCluster, tables: str) -> Iterator[OpenStore]:
    """Opens stores on the single node; keyword arguments change the configuration."""
    opened: list[Store] = []

    def open_(**changes: object) -> Store:
        opened.append(Store.open(json.dumps(cassandra.store_config(tables) | changes)))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


@pytest.fixture
def dataset_id() -> bytes:
    return os.urandom(16)
