"""What must be in the catalog before a server can start: tables, the admin, the default project."""

from dataclasses import dataclass

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from penstock_server.commands.console import CommandRefused
from penstock_server.db import Catalog
from penstock_server.db.migrations import CatalogUnusable, migrate, require_current
from penstock_server.domain.projects.service import ProjectService
from penstock_server.domain.tokens.service import TokenService
from penstock_server.domain.users.service import NewCode, UserService
from penstock_server.models import Project

LOCAL_TOKEN_NAME = "local server"  # noqa: S105 (a name)


@dataclass(frozen=True)
class FirstRows:
    project: Project
    token: str
    login_code: NewCode


def migrate_or_refuse(catalog: Catalog) -> bool:
    try:
        return migrate(catalog)
    except CatalogUnusable as error:
        raise CommandRefused(str(error)) from None
    except SQLAlchemyError as error:
        raise _unreachable(catalog, error) from None


def require_current_or_refuse(catalog: Catalog) -> None:
    try:
        require_current(catalog)
    except CatalogUnusable as error:
        raise CommandRefused(str(error)) from None
    except SQLAlchemyError as error:
        raise _unreachable(catalog, error) from None


def ensure_first_rows(catalog: Catalog, *, code_minutes: float) -> FirstRows:
    """The admin, the default project, a fresh token for programs on this machine and a login code."""
    with catalog.unit() as unit:
        admin = UserService(unit).ensure_admin()
        return FirstRows(
            project=ProjectService(unit).ensure_default(),
            token=TokenService(unit).replace(admin.id, LOCAL_TOKEN_NAME).secret,
            login_code=UserService(unit).issue_code(admin.id, minutes=code_minutes),
        )


def issue_admin_code(catalog: Catalog, *, minutes: float) -> NewCode:
    try:
        with catalog.unit() as unit:
            users = UserService(unit)
            return users.issue_code(users.ensure_admin().id, minutes=minutes)
    except SQLAlchemyError as error:
        raise _unreachable(catalog, error) from None


def _unreachable(catalog: Catalog, error: SQLAlchemyError) -> CommandRefused:
    place = make_url(catalog.url).render_as_string(hide_password=True)
    reason = str(error.orig if isinstance(error, DBAPIError) and error.orig else error).strip().splitlines()
    return CommandRefused(
        f"the catalog {place} cannot be used ({reason[0] if reason else type(error).__name__}): check that the "
        "database runs and that PENSTOCK_CATALOG__URL is right, or that the file is a catalog of Penstock"
    )
