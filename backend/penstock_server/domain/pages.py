"""Lists in pages: the shape of a page and keyset cursors that work both ways."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from penstock.contract.codes import ErrorCode
from penstock_server.errors import FieldProblem, InvalidInput

T = TypeVar("T")
KeyValue = str | int | float | bool | None

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


class Page(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None = None
    prev_cursor: str | None = None
    total: int | None = None


@dataclass(frozen=True)
class PageRequest:
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


@dataclass(frozen=True)
class Cursor:
    """A place in a list: the key of the row beside it, and on which side the page lies."""

    key: tuple[KeyValue, ...]
    is_backward: bool = False


def encode_cursor(scope: str, cursor: Cursor) -> str:
    """`scope` names the list with its filter, order and user: a cursor fits the list it came from only."""
    text = json.dumps([_mark(scope), int(cursor.is_backward), *cursor.key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(scope: str, text: str) -> Cursor:
    try:
        mark, is_backward, *key = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        raise _bad_cursor("is no cursor of this server") from None
    if mark != _mark(scope):
        raise _bad_cursor("belongs to another list, filter or order")
    if not all(value is None or isinstance(value, str | int | float) for value in key):
        raise _bad_cursor("is no cursor of this server")
    return Cursor(tuple(key), is_backward=bool(is_backward))


def id_of(cursor: Cursor) -> UUID:
    """The id that a cursor of a list ordered by id stands beside; anybody can write one, so it may be none."""
    try:
        (value,) = cursor.key
        return UUID(str(value))
    except ValueError:
        raise _bad_cursor("is no cursor of this list") from None


def page_of(
    rows: Sequence[T],
    keys: Sequence[tuple[KeyValue, ...]],
    request: PageRequest,
    *,
    scope: str,
    total: int | None = None,
) -> Page[T]:
    """A page from up to `limit + 1` rows read in the direction of the request's cursor."""
    cursor = decode_cursor(scope, request.cursor) if request.cursor else None
    is_backward = cursor is not None and cursor.is_backward
    has_more = len(rows) > request.limit
    items, edge = list(rows[: request.limit]), list(keys[: request.limit])
    if is_backward:
        items.reverse()
        edge.reverse()
    has_next = has_more if not is_backward else True
    has_previous = has_more if is_backward else cursor is not None
    return Page[T](
        items=items,
        next_cursor=encode_cursor(scope, Cursor(edge[-1])) if edge and has_next else None,
        prev_cursor=encode_cursor(scope, Cursor(edge[0], is_backward=True)) if edge and has_previous else None,
        total=total,
    )


def _mark(scope: str) -> str:
    return hashlib.blake2s(scope.encode(), digest_size=6).hexdigest()


def _bad_cursor(why: str) -> InvalidInput:
    message = f"this cursor {why}; start again without a cursor"
    return InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/cursor", message)])
