"""Brings a catalog to the shape this version of the server needs, or says why that cannot be."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from penstock_server.db.catalog import Catalog

# Any constant of ours: two servers that start at once migrate one after the other.
_MIGRATION_LOCK = 0x70656E74


class CatalogTooNew(Exception):
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
    newest = _scripts(config).get_current_head() or ""
    with catalog.engine.begin() as connection:
        if catalog.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        current = MigrationContext.configure(connection).get_current_revision()
        if current == newest:
            return False
        _refuse_unknown(current, config, newest)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return True


def check_current(catalog: Catalog) -> str | None:
    """None when the catalog has the newest shape, else what to do."""
    config = _config()
    newest = _scripts(config).get_current_head() or ""
    with catalog.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current == newest:
        return None
    _refuse_unknown(current, config, newest)
    return "the catalog is older than this version of Penstock: run `penstock migrate`"


def _refuse_unknown(current: str | None, config: Config, newest: str) -> None:
    known = {script.revision for script in _scripts(config).walk_revisions()}
    if current is not None and current not in known:
        raise CatalogTooNew(current, known=newest)


def _scripts(config: Config) -> ScriptDirectory:
    return ScriptDirectory.from_config(config)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
