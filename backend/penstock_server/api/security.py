"""The doors: bearer tokens for scripts, an HttpOnly session with a CSRF token for the browser."""

import time
from dataclasses import dataclass
from uuid import UUID

import structlog
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from penstock.contract.codes import ErrorCode
from penstock_server.db import Catalog
from penstock_server.domain.secrets import hash_of, is_match
from penstock_server.domain.tokens.service import TokenService
from penstock_server.domain.users.service import NewSession, UserService
from penstock_server.errors import NotPermitted, Unauthenticated
from penstock_server.policy import Actor, Role
from penstock_server.settings import ServerSettings

CSRF_HEADER = "X-CSRF-Token"
# How long a revoked token or an ended session may still work in another process of the server.
CACHE_SECONDS = 3.0
_CACHE_ENTRIES = 10_000
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Known:
    actor: Actor
    csrf_hash: str | None
    until: float


class Authenticator:
    """Who asks. Looks in the catalog, in a thread, and remembers the answer for CACHE_SECONDS."""

    def __init__(self, catalog: Catalog, cookies: "SessionCookie") -> None:
        self._catalog = catalog
        self._cookies = cookies
        self._known: dict[str, _Known] = {}

    async def actor_of(self, request: Request) -> Actor:
        header = request.headers.get("Authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise _unauthenticated("the Authorization header must be 'Bearer pst_...'")
            return (await self._lookup(secret.strip(), is_session=False)).actor
        cookie = self._cookies.read(request)
        if not cookie:
            raise _unauthenticated("log in with the link that `penstock login-link` prints, or send a bearer token")
        known = await self._lookup(cookie, is_session=True)
        if request.method not in _SAFE_METHODS:
            self._check_csrf(request, known)
        return known.actor

    def forget(self, *, secret: str | None = None, token_id: UUID | None = None) -> None:
        """A session or token has just ended here: it must not live on in the cache."""
        if secret is not None:
            self._known.pop(hash_of(secret), None)
        if token_id is not None:
            self._known = {key: known for key, known in self._known.items() if known.actor.token_id != token_id}

    async def _lookup(self, secret: str, *, is_session: bool) -> _Known:
        key, now = hash_of(secret), time.monotonic()
        known = self._known.get(key)
        if known is None or known.until < now or (known.csrf_hash is not None) != is_session:
            known = await run_in_threadpool(self._read_session if is_session else self._read_token, secret)
            if len(self._known) >= _CACHE_ENTRIES:
                self._known.clear()
            self._known[key] = known
        return known

    def _read_session(self, secret: str) -> _Known:
        with self._catalog.unit(is_read_only=True) as unit:
            found = UserService(unit).find_session(secret)
        if found is None:
            raise _unauthenticated("this session has ended; log in again")
        row, user = found
        return _Known(Actor(user.id, _role(user.role)), row.csrf_hash, time.monotonic() + CACHE_SECONDS)

    def _read_token(self, secret: str) -> _Known:
        with self._catalog.unit(is_read_only=True) as unit:
            tokens = TokenService(unit)
            found = tokens.find(secret)
            is_touch_due = found is not None and tokens.is_touch_due(found[0])
        if found is None:
            raise _unauthenticated("this token is wrong, revoked or out of date; make a new one under Settings")
        token, user = found
        if is_touch_due:
            self._touch(token.id)
        return _Known(Actor(user.id, _role(user.role), token.id), None, time.monotonic() + CACHE_SECONDS)

    def _touch(self, token_id: UUID) -> None:
        try:
            with self._catalog.unit() as unit:
                TokenService(unit).touch(token_id)
        except SQLAlchemyError as error:
            _log.warning("token.not_touched", reason=type(error).__name__)

    @staticmethod
    def _check_csrf(request: Request, known: _Known) -> None:
        sent = request.headers.get(CSRF_HEADER, "")
        if known.csrf_hash is None or not is_match(sent, known.csrf_hash):
            raise NotPermitted(
                ErrorCode.AUTH_CSRF, f"the {CSRF_HEADER} header is missing or wrong; reload the page and try again"
            )


class SessionCookie:
    """The session's cookie. Cookies know no ports, so the name has it: two local servers keep apart."""

    def __init__(self, settings: ServerSettings) -> None:
        self.name = f"penstock_session_{settings.port}"
        self._is_https = settings.url.startswith("https://")

    def read(self, request: Request) -> str | None:
        return request.cookies.get(self.name)

    def set(self, response: Response, session: NewSession, *, max_age_seconds: int) -> None:
        response.set_cookie(
            self.name,
            session.secret,
            max_age=max_age_seconds,
            path="/",
            httponly=True,
            samesite="lax",
            # Over plain http a browser drops a Secure cookie, and the login would go round in circles.
            secure=self._is_https,
        )

    def clear(self, response: Response) -> None:
        response.delete_cookie(self.name, path="/", httponly=True, samesite="lax", secure=self._is_https)


def _role(name: str) -> Role:
    return "admin" if name == "admin" else "member"


def _unauthenticated(detail: str) -> Unauthenticated:
    return Unauthenticated(ErrorCode.AUTH_UNAUTHENTICATED, detail)
