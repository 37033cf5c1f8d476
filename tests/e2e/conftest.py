from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from harness.cassandra.cluster import CassandraCluster
from harness.deployments import Deployment, production_settings, running
from harness.postgres import PostgresServer
from harness.redis_server import RedisServer
from harness.services import Services

# A start with its demo on two busy cores takes the first test of each deployment minutes.
TIMEOUT_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", params=["embedded", "production"])
def deployment(request: pytest.FixtureRequest, services: Services) -> Iterator[Deployment]:
    """The two ways to run; every test of this folder that takes it runs on both."""
    folder = services.run.folder / f"e2e-{request.param}"
    folder.mkdir(parents=True)
    settings: dict[str, str] = {}
    if request.param == "production":
        cassandra: CassandraCluster = request.getfixturevalue("cassandra_secure")
        postgres: PostgresServer = request.getfixturevalue("postgres")
        redis: RedisServer = request.getfixturevalue("redis_server")
        settings = production_settings(folder, cassandra=cassandra, postgres=postgres, redis=redis)
    with running(request.param, services.run, folder, settings) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def embedded(services: Services) -> Iterator[Deployment]:
    folder = services.run.folder / "e2e-pictures"
    folder.mkdir(parents=True)
    with running("embedded", services.run, folder, {}) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    # Of the module, not the session: Playwright's loop must be gone before another test starts one of its own.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        yield browser
        browser.close()
