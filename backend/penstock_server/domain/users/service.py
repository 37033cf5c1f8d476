"""Users and how a browser gets in: a one-time code buys a session."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.db import UnitOfWork
from penstock_server.domain.secrets import csrf_token_of, hash_of, new_secret
from penstock_server.domain.users.repository import UserRepository
from penstock_server.errors import Unauthenticated
from penstock_server.models import LoginCode, SessionRow, User

ADMIN_NAME = "admin"


@dataclass(frozen=True)
class NewSession:
    user: User
    secret: str
    csrf_token: str
    expires_at: datetime


@dataclass(frozen=True)
class NewCode:
    code: str
    expires_at: datetime


class UserService:
    """Users, their sessions and their login codes."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._rows = UserRepository(unit.session)

    def ensure_admin(self) -> User:
        """The first user, who exists on every server."""
        user = self._rows.user_named(ADMIN_NAME)
        if user is None:
            user = User(name=ADMIN_NAME, role="admin", created_at=self._unit.now())
            self._rows.add(user)
        return user

    def get(self, user_id: UUID) -> User:
        user = self._rows.user(user_id)
        if user is None:
            raise Unauthenticated(ErrorCode.AUTH_UNAUTHENTICATED, "this user does not exist any more")
        return user

    def issue_code(self, user_id: UUID, *, minutes: float) -> NewCode:
        """A code that logs the user in once."""
        now = self._unit.now()
        self._rows.delete_expired(now)
        code, expires_at = new_secret(), now + timedelta(minutes=minutes)
        self._rows.add(LoginCode(code_hash=hash_of(code), user_id=user_id, expires_at=expires_at))
        return NewCode(code, expires_at)

    def open_session(self, code: str, *, hours: float) -> NewSession:
        """Exchanges a code for a session; the code is worth nothing afterwards."""
        now = self._unit.now()
        user_id = self._rows.use_code(hash_of(code), now)
        if user_id is None:
            raise Unauthenticated(
                ErrorCode.AUTH_CODE_INVALID,
                "this login code is wrong, used or out of date; get a new link with `penstock login-link`",
            )
        secret, expires_at = new_secret(), now + timedelta(hours=hours)
        csrf_token = csrf_token_of(secret)
        self._rows.add(
            SessionRow(
                user_id=user_id,
                token_hash=hash_of(secret),
                csrf_hash=hash_of(csrf_token),
                expires_at=expires_at,
                created_at=now,
            )
        )
        return NewSession(self.get(user_id), secret, csrf_token, expires_at)

    def find_session(self, secret: str) -> tuple[SessionRow, User] | None:
        """The session of this cookie while it lasts."""
        found = self._rows.session_by_hash(hash_of(secret))
        if found is None or found[0].expires_at <= self._unit.now():
            return None
        return found

    def end_session(self, secret: str) -> None:
        """Logs the browser out."""
        self._rows.delete_session(hash_of(secret))
