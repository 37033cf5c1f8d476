"""The store's control plane without a cluster: folders, identity, roles, statements and clear errors."""

import stat
from pathlib import Path
from uuid import UUID

import pytest
from unit.server.data.builders import Parts, project_of

from penstock import _reach
from penstock.contract.ids import own_object_id
from penstock_server.errors import DependencyUnavailable
from penstock_server.models import Project
from penstock_server.settings import StoreSettings
from penstock_server.store import ObjectMissing, StoreGateway
from penstock_server.store.cql_schema import migration_statements, reader_role
from penstock_server.store.identity import machine_id, store_id

PROJECT = Project(id=UUID(int=7), slug="p", name="P", keyspace=f"ps_{UUID(int=7).hex}")


def _cql(**options: object) -> StoreSettings:
    return StoreSettings.model_validate({"kind": "cql", "contact_points": ["127.0.0.1:1"], **options})


def test_own_objects_come_back_and_missing_ones_are_named(parts: Parts) -> None:
    project, dataset_id = project_of(parts), UUID(int=1)
    object_id = parts.store.put_own(project, dataset_id, "manifest", "name", b"x" * 700_000)
    assert object_id == own_object_id(dataset_id, "manifest", "name")
    assert parts.store.get_own(project, dataset_id, object_id) == b"x" * 700_000
    with pytest.raises(ObjectMissing, match=str(UUID(int=9))):
        parts.store.get_own(project, dataset_id, UUID(int=9))


def test_embedded_store_is_private_and_knows_its_machine(tmp_path: Path) -> None:
    gateway = StoreGateway(StoreSettings(), tmp_path)
    plan = gateway.reader_config(PROJECT)
    folder = Path(plan["config"]["path"])
    assert folder == tmp_path / "store" / PROJECT.id.hex
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert (plan["reach"], plan["host"], plan["config"]["is_read_only"]) == (
        "local_only",
        machine_id(folder.parent),
        True,
    )
    assert store_id(folder.parent) == store_id(folder.parent)
    assert machine_id(tmp_path / "other") != plan["host"]
    assert gateway.health() is None


def test_sdk_finds_the_same_machine_id(tmp_path: Path) -> None:
    plan = StoreGateway(StoreSettings(), tmp_path).reader_config(PROJECT)
    assert _reach._machine_id(Path(plan["config"]["path"])) == plan["host"]


def test_store_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file stands here")
    gateway = StoreGateway(StoreSettings(), tmp_path)
    with pytest.raises(DependencyUnavailable, match="cannot be used"):
        gateway.ensure_project(PROJECT)
    assert str(tmp_path / "store") in str(gateway.health())


def test_statements_have_our_keyspace_and_no_place_left_open() -> None:
    statements = migration_statements(PROJECT.keyspace)
    assert [statement.split("(")[0].split()[-1] for statement in statements] == [
        f"{PROJECT.keyspace}.samples",
        f"{PROJECT.keyspace}.objects",
    ]
    assert all("{keyspace}" not in statement and ";" not in statement for statement in statements)
    assert all("compression = {'enabled': 'false'}" in statement for statement in statements)


@pytest.mark.parametrize("name", ["x", "ps_1; DROP KEYSPACE y", "ps_" + "g" * 32, "PS_" + "0" * 32, ""])
def test_other_keyspace_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no keyspace name of ours"):
        migration_statements(name)


def test_reader_role_is_stable_differs_by_project_and_hides_the_password() -> None:
    settings = _cql(username="server", password="very secret")
    first, again = reader_role(settings, PROJECT.keyspace), reader_role(settings, PROJECT.keyspace)
    other = reader_role(settings, "ps_" + "1" * 32)
    assert first is not None
    assert other is not None
    assert first == again
    assert first.password != other.password
    assert "secret" not in first.password
    own = _cql(username="server", password="x", reader_username="reader", reader_password="y")
    assert reader_role(own, PROJECT.keyspace).username == "reader"  # type: ignore[union-attr]  # set above
    assert reader_role(_cql(), PROJECT.keyspace) is None


def test_loaders_are_told_the_public_contact_points_and_the_server_keeps_its_own(tmp_path: Path) -> None:
    assert StoreGateway(_cql(), tmp_path).reader_config(PROJECT)["config"]["contact_points"] == ["127.0.0.1:1"]
    gateway = StoreGateway(_cql(public_contact_points="192.0.2.7:9042, 192.0.2.8:9042"), tmp_path)
    plan = gateway.reader_config(PROJECT)
    assert (plan["reach"], plan["config"]["contact_points"]) == ("direct", ["192.0.2.7:9042", "192.0.2.8:9042"])
    assert gateway._config(PROJECT)["contact_points"] == ["127.0.0.1:1"]


def test_public_contact_points_need_a_port() -> None:
    with pytest.raises(ValueError, match=r"'192\.0\.2\.7' is not host:port"):
        _cql(public_contact_points=["192.0.2.7"])
