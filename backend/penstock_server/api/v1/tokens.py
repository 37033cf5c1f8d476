"""The caller's own API tokens."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, status

from penstock_server.api.deps import UnitDep, action, authorize, idempotent
from penstock_server.api.pagination import Page, PageDep
from penstock_server.api.security import Authenticator
from penstock_server.domain.idempotency import Idempotency
from penstock_server.domain.tokens.schemas import TokenCreate, TokenCreated, TokenRead
from penstock_server.domain.tokens.service import TokenService
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/tokens", tags=["tokens"])


@router.get("", openapi_extra=action(Action.TOKEN_READ))
def list_tokens(
    unit: UnitDep, page: PageDep, actor: Annotated[Actor, Depends(authorize(Action.TOKEN_READ))]
) -> Page[TokenRead]:
    """The caller's tokens, without their secrets."""
    return TokenService(unit).list(actor.user_id, page)


@router.post("", status_code=status.HTTP_201_CREATED, openapi_extra=action(Action.TOKEN_CREATE))
def create_token(
    payload: TokenCreate,
    unit: UnitDep,
    actor: Annotated[Actor, Depends(authorize(Action.TOKEN_CREATE))],
    once: Annotated[Idempotency, Depends(idempotent(Action.TOKEN_CREATE))],
) -> TokenCreated:
    """Makes a token; this answer is the only one with its secret."""
    return once.run(TokenCreated, lambda: TokenService(unit).create(actor.user_id, payload), is_secret=True)


@router.delete("/{token_id}", status_code=status.HTTP_204_NO_CONTENT, openapi_extra=action(Action.TOKEN_REVOKE))
def revoke_token(
    token_id: UUID, request: Request, unit: UnitDep, actor: Annotated[Actor, Depends(authorize(Action.TOKEN_REVOKE))]
) -> None:
    """Ends a token at once."""
    TokenService(unit).revoke(actor.user_id, token_id)
    authenticator: Authenticator = request.app.state.authenticator
    unit.after_commit(lambda: authenticator.forget(token_id=token_id))
