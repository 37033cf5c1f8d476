"""`penstock migrate` on a fresh cluster: the account of the settings takes the place of the well-known one."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cassandra.cluster import CassandraCluster, Layout
from harness.services import Services
from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import StoreSettings
from penstock_server.store.cql_schema import LoginRefused, connected
from penstock_server.store.first_account import FIRST_NAME, FIRST_PASSWORD, replace_first_account

pytestmark = pytest.mark.timeout(1200)

PENSTOCK = Path(sys.executable).with_name("penstock")
# A quote, because a password cannot be bound in statements about roles.
NAME, PASSWORD = "Lab-writer@site.a", "it's; DROP ROLE cassandra --"

# Cassandra takes another password of a role only every five seconds.
PASSWORD_REST_SECONDS = 5.5

Migrate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def fresh_cluster(services: Services) -> Iterator[CassandraCluster]:
    """A node of its own: what the tests here do to its first account cannot be taken back."""
    cluster = CassandraCluster(services.run, Layout("cassandra-fresh", 51, is_secure=True))
    yield cluster
    cluster.close()


def _account(cluster: CassandraCluster, name: str, password: str) -> StoreSettings:
    return StoreSettings.model_validate(
        {
            "kind": "cql",
            "contact_points": cluster.contact_points,
            "local_dc": cluster.local_dc,
            "username": name,
            "password": password,
            "ca_file": cluster.ca_file,
        }
    )


def _roles(account: StoreSettings) -> dict[str, tuple[bool, bool]]:
    with connected(account) as session:
        return {row.role: (row.super, row.login) for row in session.execute("LIST ROLES")}


@pytest.fixture
def migrate(services: Services, fresh_cluster: CassandraCluster, tmp_path: Path) -> Migrate:
    def run(name: str = NAME, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
        settings = {
            "PENSTOCK_DATA_FOLDER": str(tmp_path / "data"),
            "PENSTOCK_STATE_FOLDER": str(tmp_path / "state"),
            "PENSTOCK_STORE__KIND": "cql",
            "PENSTOCK_STORE__CONTACT_POINTS": ",".join(fresh_cluster.contact_points),
            "PENSTOCK_STORE__LOCAL_DC": fresh_cluster.local_dc,
            "PENSTOCK_STORE__USERNAME": name,
            "PENSTOCK_STORE__PASSWORD": password,
            "PENSTOCK_STORE__CA_FILE": str(fresh_cluster.ca_file),
        }
        return subprocess.run(
            [PENSTOCK, "migrate"],
            env=services.run.environment(settings),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_account_with_the_known_password_is_warned_of_and_left_alone(fresh_cluster: CassandraCluster) -> None:
    first = _account(fresh_cluster, FIRST_NAME, FIRST_PASSWORD)
    told: list[str] = []

    replace_first_account(first, tell=told.append)

    assert [line.split(":")[0] for line in told] == ["Warning"]
    assert _roles(first) == {FIRST_NAME: (True, True)}


def test_cluster_with_other_roles_is_not_touched(fresh_cluster: CassandraCluster) -> None:
    first = _account(fresh_cluster, FIRST_NAME, FIRST_PASSWORD)
    with connected(first) as session:
        session.execute("CREATE ROLE somebody")
    try:
        with pytest.raises(DependencyUnavailable, match="is not fresh"):
            replace_first_account(_account(fresh_cluster, NAME, PASSWORD), tell=lambda _: None)
        assert set(_roles(first)) == {FIRST_NAME, "somebody"}
    finally:
        with connected(first) as session:
            session.execute("DROP ROLE somebody")


def test_name_that_no_role_can_have_is_refused_before_anything_is_made(fresh_cluster: CassandraCluster) -> None:
    with pytest.raises(DependencyUnavailable, match="PENSTOCK_STORE__USERNAME"):
        replace_first_account(_account(fresh_cluster, "lab's writer", PASSWORD), tell=lambda _: None)
    assert set(_roles(_account(fresh_cluster, FIRST_NAME, FIRST_PASSWORD))) == {FIRST_NAME}


def test_migrate_makes_the_account_closes_the_first_one_and_is_harmless_again(
    fresh_cluster: CassandraCluster, migrate: Migrate
) -> None:
    own = _account(fresh_cluster, NAME, PASSWORD)

    made = migrate()

    assert made.returncode == 0, made.stderr
    assert "The store is fresh" in made.stderr
    assert "DROP" not in made.stdout + made.stderr
    closed = {NAME: (True, True), FIRST_NAME: (False, False)}
    assert _roles(own) == closed
    with pytest.raises(LoginRefused), connected(_account(fresh_cluster, FIRST_NAME, FIRST_PASSWORD)):
        pass

    again = migrate()

    assert (again.returncode, again.stdout, again.stderr) == (0, "The catalog is up to date.\n", "")
    assert _roles(own) == closed


@pytest.fixture
def own(fresh_cluster: CassandraCluster) -> StoreSettings:
    account = _account(fresh_cluster, NAME, PASSWORD)
    replace_first_account(account, tell=lambda _: None)
    return account


def test_run_that_was_cut_off_is_ended_by_the_next(own: StoreSettings) -> None:
    rights = "SUPERUSER = true AND LOGIN = true"
    with connected(own) as session:
        time.sleep(PASSWORD_REST_SECONDS)
        session.execute(f"ALTER ROLE {FIRST_NAME} WITH PASSWORD = '{FIRST_PASSWORD}' AND {rights}")
        time.sleep(PASSWORD_REST_SECONDS)
    told: list[str] = []

    replace_first_account(own, tell=told.append)

    assert told == [f"The first account {FIRST_NAME!r} of the store can no longer log in."]
    assert _roles(own)[FIRST_NAME] == (False, False)


def test_wrong_password_on_a_closed_cluster_is_refused_and_not_shown(own: StoreSettings) -> None:
    wrong = own.model_copy(update={"password": "canary"})
    with pytest.raises(LoginRefused, match="PENSTOCK_STORE__PASSWORD") as caught:
        replace_first_account(wrong, tell=lambda _: None, patience_seconds=2)
    assert "canary" not in caught.value.detail
