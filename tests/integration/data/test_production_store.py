"""A small version on a real Cassandra and a real PostgreSQL: keyspace, tables, publish, query, split, resolve."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from unit.server.data.builders import (
    Parts,
    actor_of,
    create_dataset,
    items,
    open_parts,
    project_of,
    publish,
    staged,
    store_bytes,
)

from harness.cassandra.cluster import CassandraCluster
from penstock import _native
from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock_server.domain.pages import PageRequest
from penstock_server.domain.samples.service import SampleService
from penstock_server.domain.splits.planner import SplitPlanner
from penstock_server.domain.splits.schemas import ResolveRequest, SplitCreate
from penstock_server.domain.splits.service import SplitService
from penstock_server.errors import DependencyUnavailable
from penstock_server.manifests.copies import QueryCopies
from penstock_server.models import Project
from penstock_server.settings import CatalogSettings, Settings, StoreSettings
from penstock_server.store import StoreGateway


def _store_settings(cluster: CassandraCluster, **options: object) -> StoreSettings:
    return StoreSettings.model_validate(
        {
            "kind": "cql",
            "contact_points": cluster.contact_points,
            "local_dc": cluster.local_dc,
            "replication_factor": 1,
            **options,
        }
    )


def _project() -> Project:
    project_id = uuid7()
    return Project(id=project_id, slug="p", name="P", keyspace=f"ps_{project_id.hex}")


@contextmanager
def _opened(config: dict[str, object]) -> Iterator[_native.Store]:
    store = _native.Store.open(json.dumps(config))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def parts(cassandra: CassandraCluster, database: str, tmp_path: Path) -> Iterator[Parts]:
    settings = Settings(
        data_folder=tmp_path / "data",
        state_folder=tmp_path / "state",
        catalog=CatalogSettings(url=database),
        store=_store_settings(cassandra),
    )
    opened = open_parts(settings)
    yield opened
    keyspace = project_of(opened).keyspace
    opened.close()
    cassandra.drop_keyspace(keyspace)


def test_keyspace_and_tables_are_made_once_and_again(cassandra: CassandraCluster, tmp_path: Path) -> None:
    project = _project()
    for _ in range(2):
        gateway = StoreGateway(_store_settings(cassandra), tmp_path)
        gateway.ensure_project(project)
        gateway.ensure_project(project)
        gateway.close()
    gateway = StoreGateway(_store_settings(cassandra), tmp_path)
    try:
        object_id = gateway.put_own(project, project.id, "manifest", "x", b"y" * 1_500_000)
        assert gateway.get_own(project, project.id, object_id) == b"y" * 1_500_000
        assert gateway.health() is None
    finally:
        gateway.close()
        cassandra.drop_keyspace(project.keyspace)


def test_reader_role_reads_and_cannot_write(cassandra_secure: CassandraCluster, tmp_path: Path) -> None:
    config = cassandra_secure.store_config("ps_" + "0" * 32)
    settings = _store_settings(
        cassandra_secure,
        username=config["username"],
        password=config["password"],
        ca_file=cassandra_secure.ca_file,
    )
    project = _project()
    gateway = StoreGateway(settings, tmp_path)
    try:
        object_id = gateway.put_own(project, project.id, "manifest", "x", b"bytes")
        plan = gateway.reader_config(project)
        assert plan["reach"] == "direct"
        assert plan["config"]["password"] != settings.password
        with _opened(plan["config"]) as reader:
            assert reader.read("objects", project.id.bytes, [object_id.bytes]) == [{"data": b"bytes"}]
            with pytest.raises(Exception, match=r"(?i)permission|unauthorized|modify"):
                reader.write("objects", project.id.bytes, [(object_id.bytes, [("data", b"other")])])
        assert gateway.get_own(project, project.id, object_id) == b"bytes"
    finally:
        gateway.close()
        cassandra_secure.drop_keyspace(project.keyspace)


def test_reader_of_another_project_sees_nothing(cassandra_secure: CassandraCluster, tmp_path: Path) -> None:
    """Each project is a wall: the role of one cannot read the keyspace of the other."""
    config = cassandra_secure.store_config("ps_" + "0" * 32)
    settings = _store_settings(
        cassandra_secure,
        username=config["username"],
        password=config["password"],
        ca_file=cassandra_secure.ca_file,
    )
    mine, theirs = _project(), _project()
    gateway = StoreGateway(settings, tmp_path)
    try:
        object_id = gateway.put_own(theirs, theirs.id, "manifest", "x", b"bytes")
        gateway.ensure_project(mine)
        stolen = {**gateway.reader_config(mine)["config"], "keyspace": theirs.keyspace}
        with pytest.raises(Exception, match=r"(?i)permission|unauthorized|select"), _opened(stolen) as reader:
            reader.read("objects", theirs.id.bytes, [object_id.bytes])
    finally:
        gateway.close()
        for project in (mine, theirs):
            cassandra_secure.drop_keyspace(project.keyspace)


def test_wrong_password_is_a_clear_error(cassandra_secure: CassandraCluster, tmp_path: Path) -> None:
    settings = _store_settings(
        cassandra_secure, username="cassandra", password="wrong", ca_file=cassandra_secure.ca_file
    )
    with pytest.raises(DependencyUnavailable) as caught:
        StoreGateway(settings, tmp_path).ensure_project(_project())
    assert caught.value.code == ErrorCode.STORE_UNAVAILABLE
    assert "wrong" not in caught.value.detail


def test_no_node_answers_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = StoreSettings.model_validate({"kind": "cql", "contact_points": [f"127.0.0.1:{port}"]})
    gateway = StoreGateway(settings, tmp_path)
    with pytest.raises(DependencyUnavailable, match="no node of the store answers"):
        gateway.ensure_project(_project())
    assert "no node" in str(gateway.health())


def test_small_version_goes_all_the_way(parts: Parts) -> None:
    rows = items(60)
    dataset_id = create_dataset(parts)
    store_bytes(parts, dataset_id, rows)
    version = publish(parts, dataset_id, [staged(dataset_id, rows)])
    assert publish(parts, dataset_id, [staged(dataset_id, rows)], parent=1) == version
    actor = actor_of(parts)
    # Another machine has no query copy: it makes one from the parts.
    copies = QueryCopies(parts.settings.data_folder / "elsewhere")
    with parts.catalog.unit(is_read_only=True) as unit:
        service = SampleService(unit, parts.store, parts.bus, copies)
        page = service.page("demo", "latest", PageRequest(limit=5), actor=actor, filter_text="tumor = 'yes'")
        found = service.field("demo", "1", page.items[0].id, "image", actor=actor)
    assert page.total == 15
    assert found.data in {item.image for item in rows}
    body = SplitCreate.model_validate(
        {
            "name": "by-patient",
            "recipe": {
                "subsets": [{"name": "train", "ratio": 0.7}, {"name": "val", "ratio": 0.3}],
                "group_by": "patient",
                "stratify_by": ["tumor"],
            },
        }
    )
    prepared = SplitPlanner(parts, copies).prepare("demo", body, actor=actor)
    with parts.catalog.unit() as unit:
        split = SplitService(unit, parts.store, parts.bus).publish(prepared, actor=actor)
    with parts.catalog.unit(is_read_only=True) as unit:
        plan = SplitService(unit, parts.store, parts.bus).resolve(
            ResolveRequest(dataset="demo", split="train"), actor=actor, live_url_base="http://127.0.0.1/live"
        )
        data, digest = SplitService(unit, parts.store, parts.bus).members("demo", plan.parts[0].object_id, actor=actor)
    assert split.report["shared_groups"] == 0
    assert (plan.store.reach, digest, len(data)) == ("direct", plan.parts[0].digest, plan.parts[0].bytes)
    assert UUID(plan.store.config["keyspace"][3:]) == project_of(parts).id if plan.store.config else False
