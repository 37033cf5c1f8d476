"""Rows of API tokens."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from penstock_server.domain.pages import Cursor
from penstock_server.models import ApiToken, User


class TokenRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, token: ApiToken) -> None:
        self._session.add(token)
        self._session.flush()

    def by_hash(self, secret_hash: str) -> tuple[ApiToken, User] | None:
        query = select(ApiToken, User).join(User, User.id == ApiToken.user_id)
        row = self._session.execute(query.where(ApiToken.secret_hash == secret_hash)).one_or_none()
        return None if row is None else (row[0], row[1])

    def of_user(self, user_id: UUID, token_id: UUID) -> ApiToken | None:
        query = select(ApiToken).where(ApiToken.id == token_id, ApiToken.user_id == user_id)
        return self._session.scalar(query.where(ApiToken.revoked_at.is_(None)))

    def page(self, user_id: UUID, cursor: Cursor | None, limit: int) -> list[ApiToken]:
        """Newest first (ids grow with time), up to `limit` rows on the cursor's side."""
        query = select(ApiToken).where(ApiToken.user_id == user_id, ApiToken.revoked_at.is_(None))
        if cursor is None:
            return list(self._session.scalars(query.order_by(ApiToken.id.desc()).limit(limit)))
        edge = UUID(str(cursor.key[0]))
        if cursor.is_backward:
            query = query.where(ApiToken.id > edge).order_by(ApiToken.id)
        else:
            query = query.where(ApiToken.id < edge).order_by(ApiToken.id.desc())
        return list(self._session.scalars(query.limit(limit)))

    def revoke_named(self, user_id: UUID, name: str, now: datetime) -> None:
        is_live = (ApiToken.user_id == user_id, ApiToken.name == name, ApiToken.revoked_at.is_(None))
        self._session.execute(update(ApiToken).where(*is_live).values(revoked_at=now))

    def touch(self, token_id: UUID, now: datetime) -> None:
        self._session.execute(update(ApiToken).where(ApiToken.id == token_id).values(last_used_at=now))
