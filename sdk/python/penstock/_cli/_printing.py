"""What commands print: tables for people, JSON for programs."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

Column = tuple[str, Callable[[Any], object]]


class Printer:
    """Writes results to stdout in the form that `--json` chooses."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    def rows(self, items: Iterable[Any], *columns: Column) -> None:
        """A listing: aligned columns, or `{"items": [...]}`."""
        if self.is_json:
            self._document({"items": [plain(item) for item in items]})
            return
        table = [[title for title, _ in columns]]
        table += [[_cell(value(item)) for _, value in columns] for item in items]
        widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
        for row in table:
            _write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def record(self, item: Any, *lines: tuple[str, object]) -> None:
        """One thing: a line a property, or its JSON object."""
        if self.is_json:
            self._document(plain(item))
            return
        width = max((len(name) for name, _ in lines), default=0)
        for name, value in lines:
            _write(f"{name.ljust(width)}  {_cell(value)}".rstrip())

    def note(self, text: str) -> None:
        """A line for people only."""
        if not self.is_json:
            _write(_printable(text))

    def _document(self, document: object) -> None:
        _write(json.dumps(document, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return _printable(text)


def _printable(text: str) -> str:
    # Names come from files: a control character must not drive the terminal.
    return "".join(character if character.isprintable() else "?" for character in text)


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
