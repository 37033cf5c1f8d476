from collections.abc import Iterator

import pytest
from sqlalchemy import delete
from unit.jobs.lease_cases import LeaseCases

from harness.postgres import PostgresServer
from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate
from penstock_server.models import Job


@pytest.fixture(scope="module")
def migrated(postgres: PostgresServer) -> Iterator[Catalog]:
    postgres.restore()
    name = postgres.create_database()
    catalog = Catalog(postgres.url(name))
    migrate(catalog)
    yield catalog
    catalog.close()
    postgres.drop_database(name)


class TestLeasesOnPostgres(LeaseCases):
    @pytest.fixture
    def catalog(self, migrated: Catalog) -> Iterator[Catalog]:
        yield migrated
        with migrated.unit() as unit:
            unit.session.execute(delete(Job))
