"""A catalog that is migrated once and copied for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate


@pytest.fixture(scope="session")
def migrated_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalog") / "catalog.sqlite3"
    catalog = Catalog(f"sqlite:///{path}")
    migrate(catalog)
    catalog.close()
    return path


@pytest.fixture
def catalog(migrated_catalog: Path, tmp_path: Path) -> Iterator[Catalog]:
    path = tmp_path / "catalog.sqlite3"
    shutil.copy(migrated_catalog, path)
    catalog = Catalog(f"sqlite:///{path}")
    yield catalog
    catalog.close()
