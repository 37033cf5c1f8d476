"""Whether the store is ready is what its first use would find, on a Cassandra with passwords."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cassandra.cluster import CassandraCluster
from penstock.contract.ids import uuid7
from penstock_server.models import Project
from penstock_server.settings import StoreSettings
from penstock_server.store import StoreGateway
from penstock_server.store.cql_schema import apply, connected, ensure_keyspace


@pytest.fixture
def settings(cassandra_secure: CassandraCluster) -> StoreSettings:
    config = cassandra_secure.store_config("ps_" + "0" * 32)
    return StoreSettings.model_validate(
        {
            "kind": "cql",
            "contact_points": cassandra_secure.contact_points,
            "local_dc": cassandra_secure.local_dc,
            "replication_factor": 1,
            "username": config["username"],
            "password": config["password"],
            "ca_file": cassandra_secure.ca_file,
        }
    )


@pytest.fixture
def project(cassandra_secure: CassandraCluster) -> Iterator[Project]:
    project_id = uuid7()
    project = Project(id=project_id, slug="p", name="P", keyspace=f"ps_{project_id.hex}")
    yield project
    cassandra_secure.drop_keyspace(project.keyspace)


def health_of(settings: StoreSettings, project: Project, folder: Path) -> str | None:
    gateway = StoreGateway(settings, folder)
    try:
        # The port answers in all of these tests.
        assert gateway.health() is None
        return gateway.health(project)
    finally:
        gateway.close()


def test_store_that_can_be_used_is_ready(settings: StoreSettings, project: Project, tmp_path: Path) -> None:
    assert health_of(settings, project, tmp_path) is None


@pytest.mark.parametrize("lost", ["keyspace", "samples", "objects"])
def test_tables_dropped_while_the_server_runs_are_missed_and_found_again(
    settings: StoreSettings, project: Project, tmp_path: Path, lost: str
) -> None:
    gateway = StoreGateway(settings, tmp_path)
    dataset_id = uuid7()
    try:
        gateway.put_own(project, dataset_id, "part", "a", b"before")
        assert gateway.health(project) is None
        with connected(settings) as session:
            what = f"KEYSPACE {project.keyspace}" if lost == "keyspace" else f"TABLE {project.keyspace}.{lost}"
            apply(session, f"DROP {what}")

        detail = gateway.health(project)
        assert detail is not None
        assert "its tables are gone: restore its keyspace from a backup, or restart the server" in detail
        assert str(settings.username) not in detail

        ensure_keyspace(settings, project.keyspace)
        assert gateway.health(project) is None
        object_id = gateway.put_own(project, dataset_id, "part", "b", b"after")
        assert gateway.get_own(project, dataset_id, object_id) == b"after"
    finally:
        gateway.close()


def test_wrong_password_is_not_ready(settings: StoreSettings, project: Project, tmp_path: Path) -> None:
    wrong = settings.model_copy(update={"password": "wrong"})

    detail = health_of(wrong, project, tmp_path)

    assert detail is not None
    assert str(settings.username) not in detail


def test_keyspace_that_is_missing_and_cannot_be_made_is_not_ready(
    settings: StoreSettings, project: Project, tmp_path: Path
) -> None:
    account = {"username": f"weak_{project.id.hex}", "password": "secret"}
    with connected(settings) as session:
        session.execute(f"CREATE ROLE {account['username']} WITH PASSWORD = 'secret' AND LOGIN = true")

    assert health_of(settings.model_copy(update=account), project, tmp_path) is not None
