"""Migrations make exactly what the models say, on both databases, up and down, one server at a time."""

import threading

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from penstock_server.db import Catalog
from penstock_server.db.migrations import CatalogTooNew, _config, check_current, migrate
from penstock_server.models import Base


def test_an_upgraded_catalog_is_what_the_models_say(empty_catalog: Catalog) -> None:
    assert migrate(empty_catalog)

    with empty_catalog.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_checks_and_keys_are_the_same_as_from_the_models(empty_catalog: Catalog) -> None:
    """Alembic does not compare CHECKs: names of all constraints are compared here."""
    migrate(empty_catalog)
    inspector = inspect(empty_catalog.engine)
    for table in Base.metadata.sorted_tables:
        declared = {str(c.name) for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        assert {str(found["name"]) for found in inspector.get_check_constraints(table.name)} == declared, table.name
        keys = {tuple(key["constrained_columns"]) for key in inspector.get_foreign_keys(table.name)}
        assert keys == {tuple(key.columns.keys()) for key in table.foreign_key_constraints}, table.name


def test_a_second_migration_changes_nothing(empty_catalog: Catalog) -> None:
    assert migrate(empty_catalog)
    assert not migrate(empty_catalog)
    assert check_current(empty_catalog) is None


def test_all_of_it_can_be_taken_back(empty_catalog: Catalog) -> None:
    migrate(empty_catalog)
    config = _config()
    with empty_catalog.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    assert inspect(empty_catalog.engine).get_table_names() == ["alembic_version"]
    assert migrate(empty_catalog)


def test_a_catalog_of_a_newer_version_is_refused_and_left_alone(empty_catalog: Catalog) -> None:
    migrate(empty_catalog)
    with empty_catalog.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(CatalogTooNew, match=r"newer version of Penstock.*9999.*install the newer version"):
        migrate(empty_catalog)
    with pytest.raises(CatalogTooNew):
        check_current(empty_catalog)
    with empty_catalog.engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


def test_an_old_catalog_is_told_what_to_do(empty_catalog: Catalog) -> None:
    assert "penstock migrate" in (check_current(empty_catalog) or "")


def test_servers_that_start_together_migrate_once(empty_url: str) -> None:
    changed: list[bool] = []
    errors: list[BaseException] = []

    def start() -> None:
        catalog = Catalog(empty_url)
        try:
            changed.append(migrate(catalog))
        except BaseException as error:
            errors.append(error)
        finally:
            catalog.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert sorted(changed) == [False, False, False, True]


def test_a_migration_that_fails_leaves_nothing_behind(empty_catalog: Catalog) -> None:
    with empty_catalog.engine.begin() as connection:
        connection.execute(text("CREATE TABLE users (id INTEGER)"))

    with pytest.raises(Exception, match="users"):
        migrate(empty_catalog)

    assert inspect(empty_catalog.engine).get_table_names() == ["users"]
