"""Production parts for a test: PostgreSQL, Cassandra, Redis and a folder of pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault.worker_processes import production_groups, settings_of
from unit.jobs.stage import Stage, open_stage, write_pictures

from harness.cassandra.cluster import CassandraCluster

PICTURES = 1_200


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of pictures."""
    folder = tmp_path_factory.mktemp("pictures") / "animals"
    write_pictures(folder, PICTURES, side=48)
    return folder


@pytest.fixture
def groups(
    tmp_path: Path, pictures: Path, database: str, redis_url: str, cassandra: CassandraCluster
) -> dict[str, Any]:
    del tmp_path
    return production_groups(
        pictures.parent, database=database, redis_url=redis_url, contact_points=cassandra.contact_points
    )


@pytest.fixture
def stage(tmp_path: Path, groups: dict[str, Any], cassandra: CassandraCluster) -> Iterator[Stage]:
    stage = open_stage(settings_of(tmp_path, groups))
    yield stage
    keyspace = stage.project.keyspace
    stage.services.close()
    cassandra.drop_keyspace(keyspace)
