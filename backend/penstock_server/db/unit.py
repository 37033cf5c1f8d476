"""One transaction on the catalog, and what runs once it is committed."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy import text
from sqlalchemy.orm import Session

_log = structlog.get_logger(__name__)


class UnitOfWork:
    """A session that commits on a clean exit and rolls back on an error.

    Nothing is sent to the database before the first use of `session`.
    """

    def __init__(self, session: Session, *, is_read_only: bool = False) -> None:
        self.session = session
        self.is_read_only = is_read_only
        self._after_commit: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
            self.close()
        else:
            self.rollback()

    @property
    def is_idle(self) -> bool:
        """True when there is nothing to commit and nobody to tell."""
        return not self.session.in_transaction() and not self._after_commit

    def after_commit(self, call: Callable[[], None]) -> None:
        """Runs `call` when, and only when, this unit has been committed."""
        self._after_commit.append(call)

    def now(self) -> datetime:
        """The database's clock, the one clock that all processes share."""
        dialect = self.session.get_bind().dialect.name
        if dialect == "sqlite":
            stamp = self.session.scalar(text("SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')"))
            return datetime.fromisoformat(str(stamp)).replace(tzinfo=UTC)
        moment = self.session.scalar(text("SELECT clock_timestamp()"))
        if not isinstance(moment, datetime):
            msg = "the catalog gave no time"
            raise TypeError(msg)
        return moment.astimezone(UTC)

    def commit(self) -> None:
        try:
            self.session.commit()
        except BaseException:
            self.rollback()
            raise
        calls, self._after_commit = self._after_commit, []
        for call in calls:
            # The data is safe already: a failing announcement must not look like a failed change.
            try:
                call()
            except Exception:
                _log.exception("after_commit.failed", call=getattr(call, "__qualname__", repr(call)))

    def rollback(self) -> None:
        self._after_commit.clear()
        self.session.rollback()
        self.session.close()

    def close(self) -> None:
        self.session.close()
