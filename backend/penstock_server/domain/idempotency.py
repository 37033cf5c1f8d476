"""A repeated request with the same Idempotency-Key gets the first answer and changes nothing."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError

from penstock.contract.codes import ErrorCode
from penstock_server.db import UnitOfWork
from penstock_server.errors import Conflict
from penstock_server.models import IdempotencyKey

KEPT_HOURS = 24

M = TypeVar("M", bound=BaseModel)


class Idempotency:
    """Keys are scoped to the user; the key is committed together with what it stands for."""

    def __init__(self, unit: UnitOfWork, user_id: UUID, key: str | None, *, operation: str, body: bytes) -> None:
        self._unit = unit
        self._user_id = user_id
        self._key = key
        self._request_hash = hashlib.sha256(operation.encode() + b"\n" + body).hexdigest()

    def run(self, model: type[M], make: Callable[[], M], *, status: int = 201, is_secret: bool = False) -> M:
        """`is_secret`: the answer must not be kept, so a repetition is refused instead of answered again."""
        if self._key is None:
            return make()
        row = self._find()
        if row is None:
            row = self._reserve(status)
        if row.body:
            return self._replay(model, row, is_secret=is_secret)
        answer = make()
        row.body = {"secret": True} if is_secret else answer.model_dump(mode="json")
        self._unit.session.flush()
        return answer

    def _find(self) -> IdempotencyKey | None:
        return self._unit.session.get(IdempotencyKey, (self._user_id, self._key))

    def _reserve(self, status: int) -> IdempotencyKey:
        session, now = self._unit.session, self._unit.now()
        session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < now - timedelta(hours=KEPT_HOURS)))
        row = IdempotencyKey(
            user_id=self._user_id,
            key=self._key,
            request_hash=self._request_hash,
            status=status,
            body={},
            created_at=now,
        )
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:
            # Another request with this key was under way; the insert waited until it was committed.
            found = self._find()
            if found is None:
                raise
            return found
        return row

    def _replay(self, model: type[M], row: IdempotencyKey, *, is_secret: bool) -> M:
        if row.request_hash != self._request_hash:
            raise Conflict(
                ErrorCode.REQUEST_IDEMPOTENCY_CONFLICT,
                "this Idempotency-Key was used for another request; take a new key for a new request",
            )
        if is_secret:
            raise Conflict(
                ErrorCode.REQUEST_IDEMPOTENCY_CONFLICT,
                "the first request with this Idempotency-Key succeeded and its secret was shown once; "
                "if that answer was lost, revoke what it made and repeat with a new key",
            )
        return model.model_validate(row.body)
