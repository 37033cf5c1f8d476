"""The fixtures of the test services. A service starts when the first test asks for it and serves the whole run."""

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from harness.cassandra.cluster import CassandraCluster
from harness.postgres import PostgresServer
from harness.processes import Process
from harness.redis_server import RedisServer
from harness.relay import Relay
from harness.run import ROOT
from harness.services import Services

# Fixture -> the service whose log a failing test should show.
_SERVICE_OF = {
    "cassandra": "cassandra",
    "cassandra_secure": "cassandra_secure",
    "cassandra_ring_session": "cassandra_ring",
    "redis_server": "redis",
    "postgres": "postgres",
}
_SERVICES = pytest.StashKey[Services]()
# Fixture -> those that it asked for while it was made, which its own arguments do not tell.
_ASKED_FOR = pytest.StashKey[dict[str, set[str]]]()
_ENDED_BEFORE = pytest.StashKey[set[Process]]()
_START_SECONDS = 900


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Iterator[Services]:
    services = Services()
    pytestconfig.stash[_SERVICES] = services
    yield services
    services.close()


@pytest.fixture(scope="session")
def cassandra(services: Services) -> CassandraCluster:
    """One node, without a password."""
    return services.cassandra


@pytest.fixture(scope="session")
def cassandra_secure(services: Services) -> CassandraCluster:
    """One node with password and TLS."""
    return services.cassandra_secure


@pytest.fixture(scope="session")
def cassandra_ring_session(services: Services) -> CassandraCluster:
    """Three nodes, each behind a relay. Tests take `cassandra_ring`, which is whole again before each of them."""
    return services.cassandra_ring


@pytest.fixture(scope="session")
def redis_server(services: Services) -> RedisServer:
    return services.redis


@pytest.fixture(scope="session")
def postgres(services: Services) -> PostgresServer:
    return services.postgres


@pytest.fixture(scope="session")
def chromium(services: Services) -> Path:
    """The browser's program, for Playwright's `executable_path`."""
    return services.chromium


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where screenshots are kept after the run."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def cassandra_ring(cassandra_ring_session: CassandraCluster) -> Iterator[CassandraCluster]:
    """The ring, with every node up and every relay clear, whatever the test before did."""
    cassandra_ring_session.restore()
    yield cassandra_ring_session
    cassandra_ring_session.restore()


@pytest.fixture
def keyspace(cassandra: CassandraCluster) -> Iterator[str]:
    yield from _keyspace(cassandra)


@pytest.fixture
def secure_keyspace(cassandra_secure: CassandraCluster) -> Iterator[str]:
    yield from _keyspace(cassandra_secure)


@pytest.fixture
def ring_keyspace(cassandra_ring: CassandraCluster) -> Iterator[str]:
    """A keyspace with three replicas that every node can see."""
    yield from _keyspace(cassandra_ring)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """An empty database, as an address for SQLAlchemy."""
    postgres.restore()
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.restore()
    postgres.drop_database(name)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    redis_server.restore()
    url = redis_server.new_database_url()
    redis_server.flush(url)
    yield url
    redis_server.restore()
    redis_server.flush(url)


@pytest.fixture
def run_folder(services: Services, request: pytest.FixtureRequest) -> Path:
    """An empty folder that is removed with the run."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:60]
    parent = services.run.folder / "tests"
    number = 0
    while (folder := parent / f"{readable}-{number}").exists():
        number += 1
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def relay(services: Services) -> Iterator[Callable[..., Relay]]:
    """`relay(target="address:port", delay_ms=75, ...)`: a relay that ends with the test."""
    made: list[Relay] = []

    def make(**settings: object) -> Relay:
        made.append(Relay(services.run, **settings))  # type: ignore[arg-type]  # the relay checks its settings
        return made[-1]

    yield make
    for each in made:
        each.stop()


def _keyspace(cluster: CassandraCluster) -> Iterator[str]:
    name = cluster.create_keyspace()
    yield name
    cluster.restore()
    cluster.drop_keyspace(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The first test on a Cassandra pays for its start, which on a busy machine may take minutes and a second try."""
    waiting = {"cassandra", "cassandra_secure", "cassandra_ring_session"}
    for item in items:
        first = waiting.intersection(getattr(item, "fixturenames", []))
        if first and config.pluginmanager.hasplugin("timeout"):
            own = item.get_closest_marker("timeout")
            seconds = float(own.args[0] if own and own.args else config.getini("timeout") or 300)
            item.add_marker(pytest.mark.timeout(seconds + len(first) * _START_SECONDS), append=False)
        waiting -= first


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Only the test for which a fixture is made sees what it asks for; later tests on it need to know as well."""
    before = set(request.fixturenames)
    try:
        return (yield)
    finally:
        asked_for = request.config.stash.setdefault(_ASKED_FOR, {})
        asked_for[fixturedef.argname] = set(request.fixturenames) - before


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    services = item.config.stash.get(_SERVICES, None)
    processes = services.run.processes if services is not None else []
    item.stash[_ENDED_BEFORE] = {process for process in processes if not process.is_running}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    services = item.config.stash.get(_SERVICES, None)
    if report.failed and services is not None:
        for process in (*_services_under(item, services), *_programs_during(item, services)):
            report.sections.append((f"{process.name} ({call.when})", process.log_tail()))
    return report


def _services_under(item: pytest.Item, services: Services) -> list[Process]:
    fixtures = _fixtures_of(item)
    names = [service for fixture, service in _SERVICE_OF.items() if fixture in fixtures]
    return [process for name in names for process in services.started(name)]


def _programs_during(item: pytest.Item, services: Services) -> list[Process]:
    """Servers and workers of ours that ran at any time of the test."""
    ended_before = item.stash.get(_ENDED_BEFORE, set())
    return [each for each in services.run.processes if each.is_shown_on_failure and each not in ended_before]


def _fixtures_of(item: pytest.Item) -> set[str]:
    """Everything the test stands on, also what was asked for by `request.getfixturevalue`."""
    asked_for = item.config.stash.get(_ASKED_FOR, {})
    waiting = set(item._request.fixturenames) if isinstance(item, pytest.Function) else set()
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= asked_for.get(name, set()) - found
    return found
