"""Keyspace, tables and the read-only role of a project, on Cassandra or ScyllaDB."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from cassandra import AlreadyExists, AuthenticationFailed, DriverException, OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import DCAwareRoundRobinPolicy
from cassandra.protocol import ErrorMessage

from penstock.contract.codes import ErrorCode
from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import StoreSettings

CONNECT_SECONDS = 5
SCHEMA_SECONDS = 30
_KEYSPACE = re.compile(r"ps_[0-9a-f]{32}")
_DC = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ROUNDS = 200_000


class LoginRefused(DependencyUnavailable):
    """The store answers and does not take this user name and password."""


@dataclass(frozen=True)
class ReaderRole:
    """The role that the loaders of one project log in with; it may SELECT in one keyspace."""

    username: str
    password: str


def reader_role(settings: StoreSettings, keyspace: str) -> ReaderRole | None:
    """The project's reader, the operator's own one if set, or None on a cluster without passwords.

    The password is derived from the server's own, slowly: every server process finds the same one without sharing a
    file, and from it nobody finds the server's.
    """
    if settings.reader_username is not None and settings.reader_password is not None:
        return ReaderRole(settings.reader_username, settings.reader_password)
    if settings.username is None or settings.password is None:
        return None
    salt = f"penstock-reader-1:{keyspace}".encode()
    password = hashlib.pbkdf2_hmac("sha256", settings.password.encode(), salt, _ROUNDS).hex()
    return ReaderRole(f"{_checked(keyspace)}_reader", password)


def migration_statements(keyspace: str) -> list[str]:
    """The statements of all CQL migrations, in order, for this keyspace."""
    name = _checked(keyspace)
    statements: list[str] = []
    for path in sorted(_migrations().iterdir(), key=lambda item: item.name):
        if path.name.endswith(".cql"):
            lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("--")]
            text = "\n".join(lines).replace("{keyspace}", name)
            statements += [part.strip() for part in text.split(";\n") if part.strip()]
    return [statement.rstrip(";") for statement in statements]


def ensure_keyspace(settings: StoreSettings, keyspace: str) -> None:
    """Create what is missing: keyspace, tables and role; safe to repeat and to run in two places at once."""
    name = _checked(keyspace)
    if not _DC.fullmatch(settings.local_dc):
        raise _unavailable(f"the data centre name {settings.local_dc!r} is no name; check PENSTOCK_STORE__LOCAL_DC")
    replication = f"{{'class': 'NetworkTopologyStrategy', '{settings.local_dc}': {settings.replication_factor}}}"
    statements = [f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {replication}", *migration_statements(name)]
    with connected(settings) as session:
        for statement in statements:
            apply(session, statement)
        role = reader_role(settings, name)
        if role is not None and settings.reader_username is None:
            _ensure_role(session, settings, role, keyspace=name)


def _ensure_role(session: Session, settings: StoreSettings, role: ReaderRole, *, keyspace: str) -> None:
    # Name and password are ours and hex: neither can be bound in these statements.
    login = f"WITH PASSWORD = '{role.password}' AND LOGIN = true"
    apply(session, f"CREATE ROLE IF NOT EXISTS {role.username} {login}")
    apply(session, f"GRANT SELECT ON KEYSPACE {keyspace} TO {role.username}")
    # Cassandra refuses a second change of a password within seconds, so it is changed only when it is another.
    if not _can_log_in(settings, role):
        apply(session, f"ALTER ROLE {role.username} {login}")


def _can_log_in(settings: StoreSettings, role: ReaderRole) -> bool:
    try:
        with connected(settings.model_copy(update={"username": role.username, "password": role.password})):
            return True
    except DependencyUnavailable:
        return False


@contextmanager
def connected(settings: StoreSettings) -> Iterator[Session]:
    """A control session; every failure of the driver leaves as DependencyUnavailable."""
    cluster = _cluster(settings)
    try:
        try:
            session = cluster.connect()
        except NoHostAvailable as error:
            if _is_login_refused(error):
                raise LoginRefused(
                    ErrorCode.STORE_UNAVAILABLE,
                    f"the store refuses the login of {settings.username!r}: check PENSTOCK_STORE__USERNAME and "
                    "PENSTOCK_STORE__PASSWORD",
                ) from error
            raise _unavailable(f"no node of the store answers: {_reason(error)}") from error
        except DriverException as error:
            raise _unavailable(f"the store refused the connection: {_reason(error)}") from error
        yield session
    finally:
        cluster.shutdown()


def _is_login_refused(error: NoHostAvailable) -> bool:
    # Reasons by host, or the hosts alone when the driver was let in once and then no more.
    reasons = error.errors.values() if isinstance(error.errors, dict) else ()
    return any(isinstance(reason, AuthenticationFailed) for reason in reasons)


def apply(session: Session, statement: str) -> None:
    """Run one statement of the schema and wait until all nodes know of it."""
    try:
        session.execute(statement, timeout=SCHEMA_SECONDS)
        has_agreed = session.cluster.control_connection.wait_for_schema_agreement(wait_time=SCHEMA_SECONDS)
    except AlreadyExists:
        return
    except (NoHostAvailable, OperationTimedOut, DriverException) as error:
        # The first words only, and no cause: a role statement holds a password.
        raise _unavailable(f"{' '.join(statement.split()[:2])} failed: {_reason(error)}") from None
    except ErrorMessage as error:
        # Such as a syntax error, whose words repeat a part of the statement.
        raise _unavailable(f"{' '.join(statement.split()[:2])} failed: {type(error).__name__}") from None
    if not has_agreed:
        raise _unavailable("the nodes of the store do not agree on the schema; check that all of them are up")


def _cluster(settings: StoreSettings) -> Any:
    profile = ExecutionProfile(
        load_balancing_policy=DCAwareRoundRobinPolicy(local_dc=settings.local_dc), request_timeout=SCHEMA_SECONDS
    )
    auth = None
    if settings.username is not None:
        auth = PlainTextAuthProvider(settings.username, settings.password)
    context = None
    if settings.ca_file is not None:
        context = ssl.create_default_context(cafile=str(settings.ca_file))
    points = [(host, int(port)) for host, _, port in (point.rpartition(":") for point in settings.contact_points)]
    return Cluster(
        contact_points=points,
        auth_provider=auth,
        ssl_context=context,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=CONNECT_SECONDS,
        max_schema_agreement_wait=SCHEMA_SECONDS,
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
    )


def _migrations() -> Any:
    packaged = files("penstock_server").joinpath("_migrations", "cql")
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[3] / "migrations" / "cql"


def _checked(keyspace: str) -> str:
    if not _KEYSPACE.fullmatch(keyspace):
        raise ValueError(f"{keyspace!r} is no keyspace name of ours")
    return keyspace


def _reason(error: Exception) -> str:
    """What each node said; the driver's own summary hides it."""
    errors = getattr(error, "errors", None)
    if isinstance(errors, dict) and errors:
        return "; ".join(f"{point}: {reason}" for point, reason in errors.items())
    return str(error) or type(error).__name__


def _unavailable(detail: str) -> DependencyUnavailable:
    return DependencyUnavailable(ErrorCode.STORE_UNAVAILABLE, detail)
