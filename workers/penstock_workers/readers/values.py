"""Typed metadata: which kind a column is, and a cell as a value of that kind."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from penstock_server.domain.datasets.schemas import ColumnKind
from penstock_workers.readers.listing import Value

# A text column is a category when its values repeat this often and are this few.
CATEGORY_REPEATS = 2
CATEGORY_LIMIT = 256
_INT64 = range(-(2**63), 2**63)
_TRUE, _FALSE = frozenset({"true", "t"}), frozenset({"false", "f"})


class NotOfKind(ValueError):
    """A cell that is no value of its column's kind; the message is the reason shown to the user."""


def infer_kind(cells: Sequence[Any]) -> ColumnKind:
    """The narrowest kind that holds every cell; cells of a CSV file are text, those of Parquet have types."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return "text"
    if any(isinstance(cell, list) for cell in present):
        return "multi_category"
    candidates: tuple[ColumnKind, ...] = ("bool", "int", "float", "timestamp")
    for kind in candidates:
        if all(_fits(cell, kind) for cell in present):
            return kind
    distinct = len({str(cell) for cell in present})
    is_category = distinct <= CATEGORY_LIMIT and distinct * CATEGORY_REPEATS <= len(present)
    return "category" if is_category else "text"


def to_value(cell: Any, kind: ColumnKind) -> Value:
    """The cell as JSON-able value of this kind: a timestamp is an ISO text in UTC, categories are their texts."""
    if cell is None:
        return None
    if kind in ("category", "text"):
        return _to_text(cell)
    if kind == "multi_category":
        return [_to_text(each) for each in cell if each is not None] if isinstance(cell, list) else _to_labels(cell)
    if kind == "bool":
        return _to_bool(cell)
    if kind == "int":
        return _to_int(cell)
    if kind == "float":
        return _to_float(cell)
    return _to_timestamp(cell)


def _fits(cell: Any, kind: ColumnKind) -> bool:
    # A number is not a date to anybody but a parser, and 0 or 1 may count something.
    if kind == "timestamp" and isinstance(cell, int | float):
        return False
    if kind in ("int", "float") and isinstance(cell, bool | datetime | date):
        return False
    try:
        to_value(cell, kind)
    except NotOfKind:
        return False
    return True


def _to_text(cell: object) -> str:
    if isinstance(cell, datetime | date):
        return cell.isoformat()
    if isinstance(cell, bytes | list | dict):
        raise _refused(cell, "a text")
    text = str(cell)
    if "\x00" in text:
        raise _refused(cell, "a text without NUL characters")
    return text


def _to_labels(cell: object) -> list[str]:
    """Several categories in one CSV cell are separated by `;`."""
    return [part.strip() for part in _to_text(cell).split(";") if part.strip()]


def _to_bool(cell: object) -> bool:
    if isinstance(cell, bool):
        return cell
    text = str(cell).strip().lower()
    if text not in _TRUE | _FALSE:
        raise _refused(cell, "true or false")
    return text in _TRUE


def _to_int(cell: object) -> int:
    try:
        number = int(cell) if isinstance(cell, int | str) else None
    except ValueError:
        number = None
    if number is None or number not in _INT64 or "_" in str(cell):
        raise _refused(cell, "a whole number")
    return number


def _to_float(cell: object) -> float | None:
    try:
        number = float(cell) if isinstance(cell, int | float | str) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or "_" in str(cell) or math.isinf(number):
        raise _refused(cell, "a number")
    return None if math.isnan(number) else number


def _to_timestamp(cell: object) -> str:
    moment = cell
    if isinstance(cell, str):
        try:
            moment = datetime.fromisoformat(cell.strip())
        except ValueError:
            raise _refused(cell, "a time as in 2026-05-31T12:00:00Z") from None
        if len(cell.strip()) < len("2026-05-31"):
            raise _refused(cell, "a time as in 2026-05-31T12:00:00Z")
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if not isinstance(moment, datetime):
        raise _refused(cell, "a time")
    # A time without a zone is taken as UTC: the same file must mean the same everywhere.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat()


def _refused(cell: object, wanted: str) -> NotOfKind:
    shown = str(cell)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return NotOfKind(f"'{shown}' is not {wanted}")
