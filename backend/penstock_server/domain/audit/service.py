"""Who changed what: written in the transaction of the change itself."""

from penstock_server.db import UnitOfWork
from penstock_server.models import AuditEntry
from penstock_server.policy import Action, Actor


class AuditTrail:
    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def record(self, actor: Actor, action: Action, target: str, *, request_id: str) -> None:
        """Adds an entry; `target` is a path or an id, never a query string or a secret."""
        detail = {"token_id": str(actor.token_id)} if actor.token_id else {}
        self._unit.session.add(
            AuditEntry(
                at=self._unit.now(),
                user_id=actor.user_id,
                action=action.value,
                target=target,
                request_id=request_id,
                detail=detail,
            )
        )
