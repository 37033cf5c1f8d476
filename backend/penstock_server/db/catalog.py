"""The catalog's engine: PostgreSQL, or SQLite with the settings that make it safe to share."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.orm import Session

from penstock_server.db.unit import UnitOfWork

BUSY_TIMEOUT_SECONDS = 30
# More than the HTTP threads (40), so that no request waits for a connection another one holds.
_POOL_SIZE = 10
_POOL_OVERFLOW = 50


class Catalog:
    """The SQL database that says what exists, who may, and what happened."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _create_engine(url)
        self._reading_engine = self.engine.execution_options(is_read_only=True)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def unit(self, *, is_read_only: bool = False) -> UnitOfWork:
        """A unit of work; on SQLite a writing one takes the write lock at its first statement."""
        engine = self._reading_engine if is_read_only else self.engine
        session = Session(engine, expire_on_commit=False)
        return UnitOfWork(session, is_read_only=is_read_only)

    def close(self) -> None:
        self.engine.dispose()


def _create_engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_size=_POOL_SIZE, max_overflow=_POOL_OVERFLOW, pool_pre_ping=True)
        event.listen(engine, "begin", _begin_postgresql)
        return engine
    engine = create_engine(
        url,
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_SECONDS},
    )
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        # At the first connection, not here: making the app for its OpenAPI file must touch no disk.
        event.listen(engine, "do_connect", lambda *_: _create_private_file(path))
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # SQLite gives its WAL files the mode of the database file.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _configure_sqlite(connection: Any, _record: object) -> None:
    # BEGIN is ours (below): the driver's own begins too late for a lock that cannot be upgraded.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_SECONDS * 1000}")
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """The change to WAL is kept in the file; it needs the whole file and, alone of all statements, does not wait."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] not in {"wal", "memory"}:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    is_read_only = connection.get_execution_options().get("is_read_only", False)
    # A reading unit that writes is a mistake on PostgreSQL too, so it is one here.
    connection.exec_driver_sql(f"PRAGMA query_only = {int(is_read_only)}")
    connection.exec_driver_sql("BEGIN" if is_read_only else "BEGIN IMMEDIATE")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get("is_read_only", False):
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
