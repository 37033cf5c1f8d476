"""The filter language: a small typed expression over a version's columns, compiled to SQL with bound values.

Words are checked before the parser sees them, the parser's tree is checked node by node, and every value travels as a
parameter: no text of a user becomes SQL.
"""

# ruff: noqa: S608 (every name in this SQL is ours, every value is bound)

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # its documented place

from penstock.contract.codes import ErrorCode
from penstock_server.errors import FieldProblem, InvalidInput
from penstock_server.manifests.columns import QueryColumn, QueryColumns

MAX_BYTES = 8192
MAX_DEPTH = 50
_HINT = "use = != < <= > >= IN LIKE BETWEEN IS NULL with AND, OR, NOT and parentheses"

_OPERATORS = frozenset({
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.IN, TokenType.AND,
    TokenType.OR, TokenType.NOT, TokenType.LIKE, TokenType.IS, TokenType.NULL, TokenType.BETWEEN, TokenType.TRUE,
    TokenType.FALSE, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.DASH, TokenType.NUMBER,
    TokenType.STRING,
})  # fmt: skip
_COMPARISONS: dict[type[Any], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT64 = 1 << 63


@dataclass(frozen=True)
class CompiledFilter:
    """A condition for WHERE and its values, in order."""

    sql: str = "TRUE"
    parameters: tuple[Any, ...] = ()


def compile_filter(text: str | None, columns: QueryColumns) -> CompiledFilter:
    """Parse and type-check a filter; raises InvalidInput (`filter.invalid`) with the position of what is wrong."""
    if text is None or not text.strip():
        return CompiledFilter()
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        _refuse(f"the filter is longer than {MAX_BYTES} bytes; make it shorter", 0)
    if any(character == "\x00" or 0xD800 <= ord(character) <= 0xDFFF for character in text):
        _refuse("the filter holds a character that is no text", 0)
    return _Compiler(text, columns).compile()


def _refuse(message: str, position: int) -> NoReturn:
    raise InvalidInput(
        ErrorCode.FILTER_INVALID,
        f"{message} (at character {position + 1})",
        context={"position": position},
        errors=[FieldProblem("/filter", message)],
    )


class _Compiler:
    def __init__(self, text: str, columns: QueryColumns) -> None:
        self._text = text
        self._columns = columns
        self._parameters: list[Any] = []

    def compile(self) -> CompiledFilter:
        tree = self._parse(self._tokens())
        sql = self._condition(tree, depth=0)
        return CompiledFilter(sql, tuple(self._parameters))

    def _tokens(self) -> list[Token]:
        try:
            tokens = list(sqlglot.tokenize(self._text))
        except (SqlglotError, RecursionError, ValueError):
            _refuse("a quote is not closed, or a character is none that filters know", len(self._text) - 1)
        checked = [self._checked(token) for token in tokens]
        depth = run = 0
        for token in checked:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            run = run + 1 if token.token_type in (TokenType.NOT, TokenType.DASH) else 0
            # The parser is recursive; this is what keeps it from running out of stack.
            if depth + run > MAX_DEPTH:
                _refuse(f"the filter nests deeper than {MAX_DEPTH} levels; make it flatter", token.start)
        return checked

    def _checked(self, token: Token) -> Token:
        """Only operators, literals and names of columns pass; a column named like a keyword becomes a plain name."""
        if token.token_type in _OPERATORS:
            return token
        name = token.text
        is_quoted = token.token_type == TokenType.IDENTIFIER
        if not is_quoted and not _WORD.fullmatch(name):
            _refuse(f"{name!r} is not part of the filter language; {_HINT}", token.start)
        if self._columns.get(name) is None:
            self._refuse_column(name, token.start)
        return Token(TokenType.VAR, name, token.line, token.col, token.start, token.end)

    def _refuse_column(self, name: str, position: int) -> NoReturn:
        close = difflib.get_close_matches(name, self._columns.names, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self._columns.names[:20])}"
        _refuse(f"there is no column {name!r}; {known}", position)

    def _parse(self, tokens: list[Token]) -> Any:
        if not tokens:
            _refuse(f"the filter is empty; {_HINT}", 0)
        try:
            trees = Parser().parse_into(exp.Condition, tokens, self._text)
        except SqlglotError as error:
            place: dict[str, Any] = next(iter(getattr(error, "errors", None) or []), {})
            found = str(place.get("highlight") or "")
            where = len(str(place.get("start_context") or "")) if len(self._text) < 100 else self._text.find(found)
            _refuse(f"the filter cannot be understood{f' near {found!r}' if found else ''}; {_HINT}", max(where, 0))
        except RecursionError:
            _refuse(f"the filter nests deeper than {MAX_DEPTH} levels; make it flatter", 0)
        if len(trees) != 1 or trees[0] is None:
            _refuse(f"the filter must be one condition; {_HINT}", 0)
        return trees[0]

    def _condition(self, node: Any, *, depth: int) -> str:
        if depth > MAX_DEPTH:
            _refuse(f"the filter nests deeper than {MAX_DEPTH} levels; make it flatter", _start(node))
        if type(node) in (exp.And, exp.Or):
            word = " AND " if type(node) is exp.And else " OR "
            # flatten: a chain of a thousand ORs is one level, not a thousand.
            parts = [self._condition(part, depth=depth + 1) for part in node.flatten(unnest=False)]
            return f"({word.join(parts)})"
        if type(node) is exp.Paren:
            return self._condition(node.this, depth=depth + 1)
        if type(node) is exp.Not:
            return f"(NOT {self._condition(node.this, depth=depth + 1)})"
        if type(node) is exp.Column:
            column = self._column(node)
            if column.kind != "bool":
                _refuse(f"{column.name!r} is of kind {column.kind}; compare it with a value", _start(node))
            return f"({column.physical} = TRUE)"
        return self._predicate(node)

    def _predicate(self, node: Any) -> str:
        kinds: dict[type[Any], Callable[[Any], str]] = {
            exp.In: self._in, exp.Like: self._like, exp.Is: self._is_null, exp.Between: self._between,
        }  # fmt: skip
        if type(node) in _COMPARISONS:
            sql = self._comparison(node)
        elif type(node) in kinds:
            sql = kinds[type(node)](node)
        else:
            _refuse(f"{_shown(node)} is not part of the filter language; {_HINT}", _start(node))
        # Some forms (NOT LIKE) carry their negation inside.
        return f"(NOT {sql})" if node.args.get("negate") else sql

    def _comparison(self, node: Any) -> str:
        operator = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        if type(right) is exp.Column and type(left) is not exp.Column:
            left, right, operator = right, left, _MIRRORED[operator]
        column = self._column(left)
        if type(right) is exp.Null:
            _refuse("nothing equals NULL; write IS NULL or IS NOT NULL", _start(node))
        if column.kind in ("category", "multi_category"):
            if operator not in ("=", "!="):
                _refuse(f"{column.name!r} is a category; it has no order: use =, !=, IN or LIKE", _start(node))
            sql = self._has_any(column, [right])
            return sql if operator == "=" else f"(NOT {sql})"
        if column.kind == "bool" and operator not in ("=", "!="):
            _refuse(f"{column.name!r} is true or false; use = or !=", _start(node))
        return f"({column.physical} {operator} {self._bind(column, right)})"

    def _in(self, node: Any) -> str:
        column = self._column(node.this)
        items = node.expressions
        if not items or (
            set(node.args) - {"this", "expressions", "negate"}
            and any(node.args.get(name) for name in ("query", "unnest", "field", "is_global"))
        ):
            _refuse("IN needs a list of values: IN ('a', 'b')", _start(node))
        if column.kind in ("category", "multi_category"):
            return self._has_any(column, items)
        return f"({column.physical} IN ({', '.join(self._bind(column, item) for item in items)}))"

    def _like(self, node: Any) -> str:
        column = self._column(node.this)
        pattern = node.expression
        if column.kind not in ("text", "category"):
            _refuse(f"LIKE works on text and categories; {column.name!r} is of kind {column.kind}", _start(node))
        if type(pattern) is not exp.Literal or not pattern.is_string:
            _refuse("LIKE needs a text: LIKE 'abc%'", _start(node))
        self._parameters.append(pattern.this)
        if column.dictionary is not None:
            return f"({column.physical} IN (SELECT code FROM {column.dictionary} WHERE value LIKE ?))"
        return f"({column.physical} LIKE ?)"

    def _is_null(self, node: Any) -> str:
        column = self._column(node.this)
        if type(node.expression) is not exp.Null:
            _refuse("only IS NULL and IS NOT NULL are known", _start(node))
        if column.kind == "multi_category":
            return f"(len({column.physical}) IS NULL OR len({column.physical}) = 0)"
        return f"({column.physical} IS NULL)"

    def _between(self, node: Any) -> str:
        column = self._column(node.this)
        if column.kind in ("category", "multi_category", "bool"):
            _refuse(f"{column.name!r} has no order; BETWEEN works on numbers, text and times", _start(node))
        if node.args.get("symmetric"):
            _refuse("BETWEEN takes no SYMMETRIC", _start(node))
        low, high = self._bind(column, node.args["low"]), self._bind(column, node.args["high"])
        return f"({column.physical} BETWEEN {low} AND {high})"

    def _column(self, node: Any) -> QueryColumn:
        if type(node) is exp.Paren:
            return self._column(node.this)
        if type(node) is not exp.Column or type(node.this) is not exp.Identifier or node.table:
            _refuse(f"a column must stand here, not {_shown(node)}", _start(node))
        column = self._columns.get(node.name)
        if column is None:
            self._refuse_column(node.name, _start(node))
        return column

    def _has_any(self, column: QueryColumn, items: list[Any]) -> str:
        codes = []
        for item in items:
            if type(item) is not exp.Literal or not item.is_string:
                _refuse(f"{column.name!r} is a category; compare it with a text in single quotes", _start(item))
            code = column.codes.get(item.this)
            if code is None:
                close = difflib.get_close_matches(item.this, column.values or (), n=1)
                known = f"did you mean {close[0]!r}?" if close else f"it has {list(column.values or ())[:10]}"
                _refuse(f"column {column.name!r} has no value {item.this!r}; {known}", _start(item))
            codes.append(code)
        self._parameters += codes
        marks = ", ".join("?" for _ in codes)
        if column.kind == "multi_category":
            return f"(coalesce(list_has_any({column.physical}, [{marks}]), FALSE))"
        return f"({column.physical} IN ({marks}))"

    def _bind(self, column: QueryColumn, node: Any) -> str:
        self._parameters.append(_value(column, node))
        return "?"


def _value(column: QueryColumn, node: Any) -> Any:
    """The Python value of a literal, of the column's type."""
    if type(node) is exp.Paren:
        return _value(column, node.this)
    if column.kind == "bool":
        if type(node) is not exp.Boolean:
            _refuse(f"{column.name!r} is true or false; compare it with TRUE or FALSE", _start(node))
        return bool(node.this)
    if column.kind in ("int", "float"):
        return _number(column, node)
    if type(node) is not exp.Literal or not node.is_string:
        _refuse(f"{column.name!r} is of kind {column.kind}; compare it with a text in single quotes", _start(node))
    if column.kind == "timestamp":
        try:
            moment = datetime.fromisoformat(node.this)
        except ValueError:
            _refuse(f"{node.this!r} is no time; write it like '2026-03-01T12:00:00Z'", _start(node))
        try:
            return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
        except OverflowError:
            _refuse(f"{node.this!r} is out of range", _start(node))
    return node.this


def _number(column: QueryColumn, node: Any) -> int | float:
    sign, literal = 1, node
    while type(literal) is exp.Neg:
        sign, literal = -sign, literal.this
    if type(literal) is not exp.Literal or literal.is_string:
        _refuse(f"{column.name!r} is of kind {column.kind}; compare it with a number", _start(node))
    try:
        whole = sign * int(literal.this)
    except ValueError:
        try:
            value = sign * float(literal.this)
        except ValueError:
            _refuse(f"{literal.this!r} is no number", _start(node))
        if not math.isfinite(value):
            _refuse(f"the number {literal.this!r} is too large", _start(node))
        return value
    if not -_INT64 <= whole < _INT64:
        _refuse(f"the number {literal.this[:40]!r} is too large", _start(node))
    return whole


def _start(node: Any) -> int:
    """Where a node begins in the text, as far as the parser kept it."""
    if hasattr(node, "walk"):
        places = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if places:
            return int(min(places))
    return 0


def _shown(node: Any) -> str:
    return f"{type(node).__name__.lower()!r}" if hasattr(node, "walk") else "nothing"
