"""Brings a catalog to the shape this version of the server needs, or says why that cannot be."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from penstock_server.db.catalog import Catalog

# Any constant of ours: two servers that start at once migrate one after the other.
_MIGRATION_LOCK = 0x70656E74


class CatalogUnusable(Exception):
    """The catalog is not of this version of the server; the message says what to do."""


class CatalogTooOld(CatalogUnusable):
    """The catalog is empty, or lacks what this version needs of it."""


class CatalogTooNew(CatalogUnusable):
    """The catalog was made by a newer version; touching it could destroy what that version keeps there."""

    def __init__(self, revision: str, *, known: str) -> None:
        super().__init__(
            f"this catalog was made by a newer version of Penstock (its revision is {revision}, this version knows up "
            f"to {known}): install the newer version again, or choose another data folder with --data-folder"
        )


def migrations_folder() -> Path:
    """Inside the installed package, else in this checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def migrate(catalog: Catalog) -> bool:
    """Upgrades to the newest revision; True when something changed."""
    config = _config()
    newest = _known_revisions()[0]
    with catalog.engine.begin() as connection:
        if catalog.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        current = MigrationContext.configure(connection).get_current_revision()
        if current == newest:
            return False
        _refuse_unknown(current)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return True


def check_current(catalog: Catalog) -> str | None:
    """None when the catalog has the newest shape, else what to do; raises CatalogTooNew."""
    with catalog.unit(is_read_only=True) as unit:
        current = MigrationContext.configure(unit.session.connection()).get_current_revision()
    if current == _known_revisions()[0]:
        return None
    _refuse_unknown(current)
    state = "empty" if current is None else "older than this version of Penstock"
    return f"the catalog is {state}: run `penstock migrate`, or start the server with `penstock up`, which does it too"


def require_current(catalog: Catalog) -> None:
    """Raises CatalogUnusable unless the catalog has exactly the shape that this version reads and writes."""
    problem = check_current(catalog)
    if problem is not None:
        raise CatalogTooOld(problem)


def _refuse_unknown(current: str | None) -> None:
    known = _known_revisions()
    if current is not None and current not in known:
        raise CatalogTooNew(current, known=known[0])


@cache
def _known_revisions() -> tuple[str, ...]:
    """Newest first; they are files of this installation."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
