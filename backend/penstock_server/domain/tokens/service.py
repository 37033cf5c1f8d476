"""API tokens: `pst_<prefix>_<secret>`, shown once and kept as a hash."""

from datetime import timedelta
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.db import UnitOfWork
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.domain.secrets import hash_of, new_token
from penstock_server.domain.tokens.repository import TokenRepository
from penstock_server.domain.tokens.schemas import TokenCreate, TokenCreated, TokenRead
from penstock_server.errors import NotFound
from penstock_server.models import ApiToken, User

# How exactly `last_used_at` is kept: a write a request would cost more than it tells.
TOUCH_SECONDS = 60


class TokenService:
    """A user's own tokens."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._rows = TokenRepository(unit.session)

    def create(self, user_id: UUID, payload: TokenCreate) -> TokenCreated:
        """Makes a token; the answer is the only place where its secret is."""
        now, made = self._unit.now(), new_token()
        days = payload.expires_in_days
        token = ApiToken(
            user_id=user_id,
            name=payload.name,
            prefix=made.prefix,
            secret_hash=hash_of(made.secret),
            created_at=now,
            expires_at=None if days is None else now + timedelta(days=days),
        )
        self._rows.add(token)
        return TokenCreated(**TokenRead.model_validate(token).model_dump(), secret=made.secret)

    def replace(self, user_id: UUID, name: str) -> TokenCreated:
        """A new token under this name; those that had the name before stop working."""
        self._rows.revoke_named(user_id, name, self._unit.now())
        return self.create(user_id, TokenCreate(name=name))

    def list(self, user_id: UUID, request: PageRequest) -> Page[TokenRead]:
        """The user's tokens that are not revoked, newest first."""
        scope = f"tokens:{user_id}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        rows = self._rows.page(user_id, cursor, request.limit + 1)
        items = [TokenRead.model_validate(row) for row in rows]
        return page_of(items, [(str(row.id),) for row in rows], request, scope=scope)

    def revoke(self, user_id: UUID, token_id: UUID) -> None:
        """Ends a token of this user."""
        token = self._rows.of_user(user_id, token_id)
        if token is None:
            raise NotFound(ErrorCode.TOKEN_NOT_FOUND, f"you have no token {token_id}")
        token.revoked_at = self._unit.now()

    def find(self, secret: str) -> tuple[ApiToken, User] | None:
        """The token with this secret, unless it is revoked or out of date."""
        found = self._rows.by_hash(hash_of(secret))
        if found is None or found[0].revoked_at is not None:
            return None
        expires_at = found[0].expires_at
        return None if expires_at is not None and expires_at <= self._unit.now() else found

    def is_touch_due(self, token: ApiToken) -> bool:
        last = token.last_used_at
        return last is None or (self._unit.now() - last).total_seconds() > TOUCH_SECONDS

    def touch(self, token_id: UUID) -> None:
        """Notes that the token was used."""
        self._rows.touch(token_id, self._unit.now())
