"""How a browser gets in and out."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, status

from penstock.contract.codes import ErrorCode
from penstock_server.api.deps import RateLimitsDep, ServicesDep, UnitDep, action, authorize
from penstock_server.api.security import Authenticator, SessionCookie
from penstock_server.domain.secrets import csrf_token_of
from penstock_server.domain.users.schemas import LoginCodeRead, SessionCreate, SessionRead, UserRead
from penstock_server.domain.users.service import UserService
from penstock_server.errors import Unauthenticated
from penstock_server.policy import Action, Actor

router = APIRouter(prefix="/session", tags=["session"])


@router.post("", openapi_extra=action(Action.SESSION_CREATE))
def create_session(
    payload: SessionCreate,
    request: Request,
    response: Response,
    unit: UnitDep,
    services: ServicesDep,
    limits: RateLimitsDep,
) -> SessionRead:
    """Exchanges a one-time login code for a session cookie."""
    limits.admit_login(request)
    hours = services.settings.auth.session_hours
    try:
        session = UserService(unit).open_session(payload.code, hours=hours)
    except Unauthenticated:
        limits.charge_failed_login(request)
        raise
    actor = Actor(session.user.id, "admin" if session.user.role == "admin" else "member")
    request.state.actor, request.state.action = actor, Action.SESSION_CREATE
    _cookies(request).set(response, session, max_age_seconds=int(hours * 3600))
    return SessionRead(user=UserRead.model_validate(session.user), csrf_token=session.csrf_token)


@router.get("", openapi_extra=action(Action.SESSION_READ))
def read_session(
    request: Request, unit: UnitDep, actor: Annotated[Actor, Depends(authorize(Action.SESSION_READ))]
) -> SessionRead:
    """Who is logged in, and the CSRF token for its unsafe requests."""
    secret = _cookies(request).read(request)
    if actor.token_id is not None or not secret:
        raise Unauthenticated(
            ErrorCode.AUTH_UNAUTHENTICATED, "a bearer token has no session; log in with a link of `penstock login-link`"
        )
    user = UserService(unit).get(actor.user_id)
    return SessionRead(user=UserRead.model_validate(user), csrf_token=csrf_token_of(secret))


@router.delete("", status_code=status.HTTP_204_NO_CONTENT, openapi_extra=action(Action.SESSION_END))
def end_session(
    request: Request, response: Response, unit: UnitDep, _: Annotated[Actor, Depends(authorize(Action.SESSION_END))]
) -> None:
    """Logs out."""
    secret = _cookies(request).read(request)
    if secret:
        UserService(unit).end_session(secret)
        authenticator: Authenticator = request.app.state.authenticator
        unit.after_commit(lambda: authenticator.forget(secret=secret))
    _cookies(request).clear(response)


@router.post("/code", openapi_extra=action(Action.SESSION_ISSUE))
def issue_code(
    unit: UnitDep, services: ServicesDep, actor: Annotated[Actor, Depends(authorize(Action.SESSION_ISSUE))]
) -> LoginCodeRead:
    """A new one-time login link for the caller."""
    settings = services.settings
    made = UserService(unit).issue_code(actor.user_id, minutes=settings.auth.code_minutes)
    login_url = f"{settings.server.url}/login#code={made.code}"
    return LoginCodeRead(code=made.code, expires_at=made.expires_at, login_url=login_url)


def _cookies(request: Request) -> SessionCookie:
    cookies: SessionCookie = request.app.state.cookies
    return cookies
