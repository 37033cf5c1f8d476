"""Each service of the harness, as a test of another part would use it."""

import json
import os
from pathlib import Path

import psycopg
import pytest
import redis

from harness.cassandra.cluster import CassandraCluster
from harness.cassandra.direct import NOT_NOW, DirectConnection, Door
from harness.postgres import PostgresServer
from harness.redis_server import RedisServer
from harness.services import Services
from harness.soak import repetitions


def test_cassandra_keyspace_takes_a_table_and_rows(cassandra: CassandraCluster, keyspace: str) -> None:
    session = cassandra.session
    session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, data blob)")
    session.execute(f"INSERT INTO {keyspace}.t (id, data) VALUES (%s, %s)", [1, b"abc"])
    assert session.execute(f"SELECT data FROM {keyspace}.t WHERE id = 1") == [{"data": b"abc"}]
    config = cassandra.store_config(keyspace)
    assert json.loads(json.dumps(config))["contact_points"] == [f"{cassandra.nodes[0].address}:{cassandra.port}"]


def test_cassandra_secure_refuses_a_client_without_password_or_tls(
    cassandra_secure: CassandraCluster, secure_keyspace: str
) -> None:
    door = cassandra_secure.nodes[0].door
    for wrong in (Door(door.address, door.port), Door(door.address, door.port, None, door.ca_file)):
        with pytest.raises(NOT_NOW), DirectConnection(wrong) as connection:
            connection.query("SELECT * FROM system.local")
    assert cassandra_secure.session.execute(f"USE {secure_keyspace}") == []
    assert cassandra_secure.ca_pem is not None
    assert "BEGIN CERTIFICATE" in cassandra_secure.ca_pem


def test_cassandra_node_killed_and_restarted_keeps_its_rows(cassandra: CassandraCluster, keyspace: str) -> None:
    session = cassandra.session
    session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY)")
    session.execute(f"INSERT INTO {keyspace}.t (id) VALUES (7)")
    cassandra.nodes[0].kill()
    assert not cassandra.nodes[0].is_up
    cassandra.nodes[0].restart()
    with DirectConnection(cassandra.nodes[0].door) as connection:
        assert connection.query(f"SELECT id FROM {keyspace}.t") == [{"id": 7}]


def test_database_is_empty_and_comes_back_after_a_crash(postgres: PostgresServer, database: str) -> None:
    address = database.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        connection.execute("CREATE TABLE kept (id int)")
    postgres.restart()
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_redis_urls_do_not_share_keys(redis_server: RedisServer, redis_url: str) -> None:
    other = redis_server.new_database_url()
    with redis.Redis.from_url(redis_url) as mine, redis.Redis.from_url(other) as theirs:
        mine.set("key", "value")
        assert theirs.get("key") is None
    redis_server.kill()
    redis_server.restore()
    with redis.Redis.from_url(redis_url) as mine:
        assert mine.get("key") is None


def test_chromium_is_a_program(chromium: Path) -> None:
    assert os.access(chromium, os.X_OK)


def test_run_folder_is_empty_and_inside_the_run(services: Services, run_folder: Path) -> None:
    assert list(run_folder.iterdir()) == []
    assert services.run.folder in run_folder.parents


def test_repetitions_follow_the_soak_switch() -> None:
    assert repetitions(3, 100) == (100 if os.environ.get("PENSTOCK_SOAK") == "1" else 3)
