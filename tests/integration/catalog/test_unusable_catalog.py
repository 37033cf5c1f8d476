"""A catalog of another version: every program that would write into it refuses, in words and in JSON."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.penstock_processes import PENSTOCK, folder_settings
from harness.services import Services
from penstock_server.db import Catalog
from penstock_server.db.migrations import migrate

Run = Callable[..., subprocess.CompletedProcess[str]]

CELERY = {"PENSTOCK_QUEUE__KIND": "celery", "PENSTOCK_QUEUE__REDIS_URL": "redis://127.0.0.1:1/0"}
PROGRAMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "worker": ([str(PENSTOCK), "worker"], {}),
    "login-link": ([str(PENSTOCK), "login-link"], {}),
    "local worker's module": ([sys.executable, "-m", "penstock_workers"], {}),
    "Celery worker's module": ([sys.executable, "-m", "penstock_workers"], CELERY),
}


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "catalog.sqlite3"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.fixture
def run(services: Services, tmp_path: Path) -> Run:
    def run(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
        environment = services.run.environment(folder_settings(tmp_path, **settings))
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS)
def test_catalog_of_a_newer_version_is_refused_and_left_alone(catalog_file: Path, run: Run, program: str) -> None:
    made = Catalog(f"sqlite:///{catalog_file}")
    migrate(made)
    made.close()
    with closing(sqlite3.connect(catalog_file)) as catalog:
        catalog.execute("UPDATE alembic_version SET version_num = '9999'")
        catalog.commit()
        before = list(catalog.iterdump())
    command, settings = PROGRAMS[program]

    refused = run(command, settings)
    told = run([*command, "--json"], settings)

    assert refused.returncode == told.returncode == 1
    assert "newer version of Penstock" in refused.stderr
    assert "Traceback" not in refused.stderr
    error = json.loads(told.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("command.refused", 1)
    assert "install the newer version" in error["detail"]
    with closing(sqlite3.connect(catalog_file)) as catalog:
        assert list(catalog.iterdump()) == before


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS)
def test_catalog_without_tables_is_refused_with_what_to_do(catalog_file: Path, run: Run, program: str) -> None:
    assert catalog_file.stat().st_size == 0
    command, settings = PROGRAMS[program]

    refused = run(command, settings)

    assert refused.returncode == 1
    assert "`penstock migrate`" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
