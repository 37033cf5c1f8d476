"""The one place that says who may do what. Nothing is allowed that is not named here."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.errors import NotPermitted

Role = Literal["admin", "member"]


class Action(StrEnum):
    """`<domain>.<verb>`; every route names its own in the OpenAPI file as `x-action`."""

    SESSION_CREATE = "session.create"
    SESSION_READ = "session.read"
    SESSION_END = "session.end"
    SESSION_ISSUE = "session.issue"
    TOKEN_READ = "token.read"  # noqa: S105 (an action, not a secret)
    TOKEN_CREATE = "token.create"  # noqa: S105
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    PROJECT_READ = "project.read"
    DATASET_READ = "dataset.read"
    DATASET_CREATE = "dataset.create"
    DATASET_UPDATE = "dataset.update"
    VERSION_READ = "version.read"
    SAMPLE_READ = "sample.read"
    SPLIT_READ = "split.read"
    SPLIT_CREATE = "split.create"
    INGEST_CREATE = "ingest.create"
    JOB_READ = "job.read"
    JOB_CANCEL = "job.cancel"
    LOADER_RESOLVE = "loader.resolve"
    LOADER_REPORT = "loader.report"
    RUN_READ = "run.read"
    EVENT_READ = "event.read"
    METRICS_READ = "metrics.read"
    HEALTH_READ = "health.read"
    PAGE_READ = "page.read"


# Open to everybody: the door itself, liveness, and the page (which holds no data).
PUBLIC_ACTIONS = frozenset({Action.SESSION_CREATE, Action.HEALTH_READ, Action.PAGE_READ})

# Changes that the audit trail names. Reports of loaders come every two seconds and are no decision of a person.
AUDITED_ACTIONS = frozenset(
    {
        Action.SESSION_CREATE,
        Action.SESSION_END,
        Action.SESSION_ISSUE,
        Action.TOKEN_CREATE,
        Action.TOKEN_REVOKE,
        Action.DATASET_CREATE,
        Action.DATASET_UPDATE,
        Action.SPLIT_CREATE,
        Action.INGEST_CREATE,
        Action.JOB_CANCEL,
    }
)

_ADMIN_ONLY = frozenset({Action.SESSION_ISSUE, Action.METRICS_READ})
_PERMISSIONS: dict[str, frozenset[Action]] = {
    "admin": frozenset(Action),
    "member": frozenset(Action) - _ADMIN_ONLY,
}


@dataclass(frozen=True)
class Actor:
    """Who asks: a user, through a browser session or through a token."""

    user_id: UUID
    role: Role
    token_id: UUID | None = None


def is_allowed(actor: Actor | None, action: Action, *, project_id: UUID | None = None) -> bool:
    """Every project is open to every user until grants exist; `project_id` is where they go."""
    del project_id
    if action in PUBLIC_ACTIONS:
        return True
    return actor is not None and action in _PERMISSIONS.get(actor.role, frozenset())


def require(actor: Actor, action: Action, *, project_id: UUID | None = None) -> None:
    """Raises NotPermitted unless the actor may do this (in this project)."""
    if not is_allowed(actor, action, project_id=project_id):
        raise NotPermitted(
            ErrorCode.AUTH_FORBIDDEN,
            f"your role '{actor.role}' does not allow '{action}'; ask an administrator",
            context={"action": str(action)},
        )
