"""Password and TLS of the native store."""

import json
import os
import time
from pathlib import Path

import pytest

from harness.cassandra.cluster import CassandraCluster
from harness.certificates import make_server_certificate
from penstock._errors import ConfigError, PenstockError
from penstock._native import Store

from .conftest import create_tables

pytestmark = pytest.mark.timeout(400)


def test_password_and_tls_carry_bytes(cassandra_secure: CassandraCluster, secure_keyspace: str) -> None:
    create_tables(cassandra_secure, secure_keyspace)
    dataset_id, object_id, data = os.urandom(16), os.urandom(16), os.urandom(1_500_000)
    with Store.open(json.dumps(cassandra_secure.store_config(secure_keyspace))) as store:
        store.write("samples", dataset_id, [(object_id, [("image", data)])])
        assert store.read("samples", dataset_id, [object_id]) == [{"image": data}]


def _opening_fails(config: dict[str, object]) -> str:
    started = time.monotonic()
    with pytest.raises(PenstockError) as caught:
        Store.open(json.dumps(config))
    assert time.monotonic() - started < 15
    return f"{type(caught.value).__name__}: {caught.value}"


def test_wrong_password_is_named_and_not_shown(cassandra_secure: CassandraCluster, secure_keyspace: str) -> None:
    message = _opening_fails(cassandra_secure.store_config(secure_keyspace) | {"password": "canary-secret"})
    assert message.startswith("ConfigError")
    assert "wrong user name or password" in message
    assert "canary-secret" not in message


def test_absent_password_is_asked_for(cassandra_secure: CassandraCluster, secure_keyspace: str) -> None:
    config = cassandra_secure.store_config(secure_keyspace) | {"username": None, "password": None}
    assert "wants a user name and a password" in _opening_fails(config)


def test_certificate_of_another_authority_is_refused(
    cassandra_secure: CassandraCluster, secure_keyspace: str, tmp_path: Path
) -> None:
    stranger = make_server_certificate(tmp_path, ["127.0.0.1"])
    config = cassandra_secure.store_config(secure_keyspace) | {"ca_pem": stranger.ca_pem}
    message = _opening_fails(config)
    assert message.startswith("ConfigError")
    assert "TLS" in message


def test_plain_text_to_a_tls_port_never_goes_through(cassandra_secure: CassandraCluster, secure_keyspace: str) -> None:
    assert "TLS" in _opening_fails(cassandra_secure.store_config(secure_keyspace) | {"ca_pem": None})


def test_tls_to_a_plain_port_never_falls_back(cassandra_secure: CassandraCluster, cassandra: CassandraCluster) -> None:
    config = cassandra.store_config("ps_any") | {"ca_pem": cassandra_secure.ca_pem}
    assert "TLS" in _opening_fails(config)


def test_what_is_no_certificate_is_refused_before_any_connection() -> None:
    config = {"kind": "cql", "contact_points": ["127.0.0.1:1"], "local_dc": "d", "keyspace": "k", "ca_pem": "hello"}
    with pytest.raises(ConfigError, match="no certificate"):
        Store.open(json.dumps(config))
