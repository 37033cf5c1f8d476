"""Cursors of lists that are ordered by id."""

from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock_server.domain.pages import Cursor
from penstock_server.errors import InvalidInput


def id_of(cursor: Cursor) -> UUID:
    """The id that the cursor stands beside; anybody can write one, so it may be none."""
    try:
        (value,) = cursor.key
        return UUID(str(value))
    except ValueError:
        raise InvalidInput(
            ErrorCode.REQUEST_INVALID, "this cursor is no cursor of this list; start again without a cursor"
        ) from None
