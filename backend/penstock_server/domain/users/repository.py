"""Rows of users, sessions and login codes."""

from datetime import datetime
from typing import cast
from uuid import UUID

from sqlalchemy import CursorResult, delete, select, update
from sqlalchemy.orm import Session

from penstock_server.models import LoginCode, SessionRow, User


class UserRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: User | SessionRow | LoginCode) -> None:
        self._session.add(row)
        self._session.flush()

    def user(self, user_id: UUID) -> User | None:
        return self._session.get(User, user_id)

    def user_named(self, name: str) -> User | None:
        return self._session.scalar(select(User).where(User.name == name))

    def session_by_hash(self, token_hash: str) -> tuple[SessionRow, User] | None:
        query = select(SessionRow, User).join(User, User.id == SessionRow.user_id)
        row = self._session.execute(query.where(SessionRow.token_hash == token_hash)).one_or_none()
        return None if row is None else (row[0], row[1])

    def delete_session(self, token_hash: str) -> None:
        self._session.execute(delete(SessionRow).where(SessionRow.token_hash == token_hash))

    def use_code(self, code_hash: str, now: datetime) -> UUID | None:
        """The user of the code, for the one caller that uses it first and in time."""
        is_usable = (LoginCode.code_hash == code_hash, LoginCode.used_at.is_(None), LoginCode.expires_at > now)
        result = self._session.execute(update(LoginCode).where(*is_usable).values(used_at=now))
        if cast("CursorResult[tuple[()]]", result).rowcount != 1:
            return None
        return self._session.scalar(select(LoginCode.user_id).where(LoginCode.code_hash == code_hash))

    def delete_expired(self, now: datetime) -> None:
        self._session.execute(delete(SessionRow).where(SessionRow.expires_at < now))
        self._session.execute(delete(LoginCode).where(LoginCode.expires_at < now))
