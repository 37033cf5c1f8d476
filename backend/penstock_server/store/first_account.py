"""The first start of a cluster with passwords: the account of the settings takes the place of the well-known one."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable

from penstock.contract.codes import ErrorCode
from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import StoreSettings
from penstock_server.store.cql_schema import LoginRefused, apply, connected

FIRST_NAME = "cassandra"
FIRST_PASSWORD = "cassandra"  # noqa: S105 (every fresh Cassandra and ScyllaDB has it; closing it is the point)
# A fresh node takes connections some seconds before it has made its first account.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


def replace_first_account(
    settings: StoreSettings, *, tell: Callable[[str], None], patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """On a fresh cluster make the account of the settings and close the first one; safe to repeat.

    Raises DependencyUnavailable when the store cannot be entered, or is not fresh and does not know the account.
    """
    if settings.kind != "cql" or settings.username is None or settings.password is None:
        return
    first = settings.model_copy(update={"username": FIRST_NAME, "password": FIRST_PASSWORD})
    if _enters(settings, first, seconds=patience_seconds, tell=tell):
        _close_if_left_open(settings, first, seconds=patience_seconds, tell=tell)
        return
    if _role_names(first) != {FIRST_NAME}:
        raise DependencyUnavailable(
            ErrorCode.STORE_UNAVAILABLE,
            f"the store refuses the login of {settings.username!r} and is not fresh: make this role as a superuser, or "
            "check PENSTOCK_STORE__USERNAME and PENSTOCK_STORE__PASSWORD",
        )
    # Cassandra puts the name into statements of its own without quoting it.
    if not _NAME.fullmatch(settings.username):
        raise DependencyUnavailable(
            ErrorCode.STORE_UNAVAILABLE,
            f"no role can be made of PENSTOCK_STORE__USERNAME={settings.username!r}: use letters, digits and . _ @ -",
        )
    _make_account(settings, first)
    # Before the first account is closed: nobody is to be locked out of the cluster.
    _wait_for_login(settings, seconds=patience_seconds)
    if settings.username == FIRST_NAME:
        tell(f"The store is fresh: its first account {FIRST_NAME!r} has the password of the settings now.")
        return
    _close(settings, first, seconds=patience_seconds)
    tell(
        f"The store is fresh: it has the account {settings.username!r} now, and its first account {FIRST_NAME!r} can "
        "no longer log in."
    )


def _enters(settings: StoreSettings, first: StoreSettings, *, seconds: float, tell: Callable[[str], None]) -> bool:
    """True when the account of the settings can log in, False when only the first account can."""
    deadline = time.monotonic() + seconds
    has_told = False
    while (problem := _login_problem(settings)) is not None:
        if isinstance(problem, LoginRefused) and _login_problem(first) is None:
            return False
        if time.monotonic() > deadline:
            raise problem
        if not has_told:
            tell(f"Waiting for the store to take the login of {settings.username!r}.")
            has_told = True
        time.sleep(_PAUSE_SECONDS)
    return True


def _wait_for_login(settings: StoreSettings, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (problem := _login_problem(settings)) is not None:
        if time.monotonic() > deadline:
            raise problem
        time.sleep(_PAUSE_SECONDS)


def _login_problem(account: StoreSettings) -> DependencyUnavailable | None:
    try:
        with connected(account):
            return None
    except DependencyUnavailable as error:
        return error


def _role_names(account: StoreSettings) -> set[str]:
    with connected(account) as session:
        return {str(row.role) for row in session.execute("LIST ROLES")}


def _make_account(settings: StoreSettings, first: StoreSettings) -> None:
    verb = "ALTER ROLE" if settings.username == FIRST_NAME else "CREATE ROLE IF NOT EXISTS"
    name, password = _literal(settings.username), _literal(settings.password)
    rights = "" if settings.username == FIRST_NAME else " AND SUPERUSER = true AND LOGIN = true"
    with connected(first) as session:
        apply(session, f"{verb} {name} WITH PASSWORD = {password}{rights}")


def _close_if_left_open(
    settings: StoreSettings, first: StoreSettings, *, seconds: float, tell: Callable[[str], None]
) -> None:
    """Ends what a run that was cut off has begun; on a cluster with other people in it, only says so."""
    if _login_problem(first) is not None:
        return
    if settings.username != FIRST_NAME and _role_names(first) == {FIRST_NAME, settings.username}:
        _close(settings, first, seconds=seconds)
        tell(f"The first account {FIRST_NAME!r} of the store can no longer log in.")
        return
    tell(f"Warning: the store still takes the login of {FIRST_NAME!r} with the password that everybody knows.")


def _close(settings: StoreSettings, first: StoreSettings, *, seconds: float) -> None:
    # The password goes too: ScyllaDB 6.2 gives its first role the right to log in back at every start.
    unknown = secrets.token_hex(32)
    with connected(settings) as session:
        apply(session, f"ALTER ROLE {FIRST_NAME} WITH PASSWORD = '{unknown}' AND SUPERUSER = false AND LOGIN = false")
    # Nodes remember a role for some seconds.
    deadline = time.monotonic() + seconds
    while _login_problem(first) is None:
        if time.monotonic() > deadline:
            raise DependencyUnavailable(
                ErrorCode.STORE_UNAVAILABLE,
                f"the first account {FIRST_NAME!r} was closed, but the store still takes its login; run this again",
            )
        time.sleep(_PAUSE_SECONDS)


def _literal(text: str | None) -> str:
    """Names and passwords cannot be bound in statements about roles."""
    return "'" + (text or "").replace("'", "''") + "'"
