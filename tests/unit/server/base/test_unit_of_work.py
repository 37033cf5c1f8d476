"""The unit of work: all or nothing, announcements after the commit only, the database's clock."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import StatementError

from penstock.contract.ids import uuid7
from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate
from penstock_server.models import CatalogMark, Event


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite3'}")
    migrate(catalog)
    yield catalog
    catalog.close()


def _marks(catalog: Catalog) -> list[str]:
    with catalog.unit(is_read_only=True) as unit:
        return list(unit.session.scalars(select(CatalogMark.key)))


def test_a_clean_exit_commits_and_then_tells(catalog: Catalog) -> None:
    seen: list[list[str]] = []
    with catalog.unit() as unit:
        unit.session.add(CatalogMark(key="a", value="1"))
        unit.after_commit(lambda: seen.append(_marks(catalog)))
        assert seen == []

    assert seen == [["a"]]


def test_an_error_rolls_back_and_tells_nobody(catalog: Catalog) -> None:
    told: list[int] = []

    def change_and_fail() -> None:
        with catalog.unit() as unit:
            unit.session.add(CatalogMark(key="a", value="1"))
            unit.session.flush()
            unit.after_commit(lambda: told.append(1))
            raise KeyError

    with pytest.raises(KeyError):
        change_and_fail()

    assert _marks(catalog) == []
    assert told == []


def test_a_failing_announcement_does_not_look_like_a_failed_change(catalog: Catalog) -> None:
    told: list[int] = []

    def fail() -> None:
        raise RuntimeError("nobody listens")

    with catalog.unit() as unit:
        unit.session.add(CatalogMark(key="a", value="1"))
        unit.after_commit(fail)
        unit.after_commit(lambda: told.append(1))

    assert _marks(catalog) == ["a"]
    assert told == [1]


def test_the_clock_is_the_databases_and_aware(catalog: Catalog) -> None:
    with catalog.unit() as unit:
        now = unit.now()

    assert now.tzinfo is UTC
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=5)


def test_moments_come_back_aware_and_naive_ones_are_refused(catalog: Catalog) -> None:
    moment = datetime(2026, 11, 16, 12, 0, 0, 123000, tzinfo=UTC)
    project_id = uuid7()
    with catalog.unit() as unit:
        unit.session.add(Event(at=moment, topic="jobs", kind="job", project_id=project_id, payload={}))
    with catalog.unit() as unit:
        assert unit.session.scalar(select(Event.at)) == moment

    naive = moment.replace(tzinfo=None)
    with pytest.raises(StatementError, match="naive"), catalog.unit() as unit:
        unit.session.add(Event(at=naive, topic="jobs", kind="job", project_id=project_id, payload={}))


def test_sqlite_is_safe_to_share(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.engine.connect() as connection:
        pragmas = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    assert (tmp_path / "catalog.sqlite3").stat().st_mode & 0o777 == 0o600


def test_a_writer_locks_at_its_first_statement_and_readers_go_on(catalog: Catalog, tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "catalog.sqlite3", timeout=0.05, isolation_level=None)) as other,
        catalog.unit() as writer,
    ):
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        writer.session.scalars(select(CatalogMark)).all()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        assert _marks(catalog) == []
