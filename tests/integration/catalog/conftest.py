"""Each test on both kinds of catalog: SQLite in a file, PostgreSQL from the harness."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_server.db import Catalog

KINDS = ("sqlite", "postgresql")


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.sqlite3'}"
    url: str = request.getfixturevalue("database")
    return url


@pytest.fixture
def empty_catalog(empty_url: str) -> Iterator[Catalog]:
    catalog = Catalog(empty_url)
    yield catalog
    catalog.close()
