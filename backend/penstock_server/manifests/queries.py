"""Lists, jumps, facets and whole columns from a query copy; read-only, bounded in time."""

# ruff: noqa: S608 (every name in this SQL is ours, every value is bound)

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa

from penstock.contract.codes import ErrorCode
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.errors import FieldProblem, InvalidInput, TooLarge
from penstock_server.manifests.columns import QueryColumn, QueryColumns, query_columns
from penstock_server.manifests.filters import CompiledFilter, compile_filter
from penstock_server.manifests.query_copy import COPY_FORMAT

QUERY_SECONDS = 20.0
MAX_FACET_VALUES = 200
_U64 = 1 << 64


class StaleCopy(Exception):
    """The file is of another format or damaged; build it again."""


@dataclass(frozen=True)
class Order:
    """A total order: an integer expression of ours, ties by manifest row; a rank counts 0, 1, 2... over all rows."""

    expression: str
    is_rank: bool = True


@dataclass(frozen=True)
class Place:
    """A row's place in an order; where a page begins."""

    key: int
    manifest_row: int


@dataclass(frozen=True)
class Facet:
    """Counts a value (None where there are too many kinds of values to count), and the range of numbers."""

    column: str
    values: list[tuple[str | bool | int | None, int]] | None
    minimum: float | int | str | None = None
    maximum: float | int | str | None = None


class QueryCopy:
    """An open copy; every call takes a cursor of its own, so threads may share it."""

    def __init__(self, path: Path, schema: DatasetSchema) -> None:
        self.schema = schema
        self.columns: QueryColumns = query_columns(schema)
        try:
            self._connection = duckdb.connect(path, read_only=True)
            about = self._connection.execute("SELECT format, rows FROM about").fetchone()
        except duckdb.Error as error:
            raise StaleCopy(str(error)) from error
        if about is None or about[0] != COPY_FORMAT:
            self._connection.close()
            raise StaleCopy("another format")
        self.row_count = int(about[1])
        # The file itself is open already; nothing else of this machine can be reached from SQL.
        for setting in ("threads = 2", "enable_external_access = false", "lock_configuration = true"):
            self._connection.execute(f"SET {setting}")

    def close(self) -> None:
        self._connection.close()

    def filter(self, text: str | None) -> CompiledFilter:
        return compile_filter(text, self.columns)

    def order(self, name: str, *, seed: int = 0) -> Order:
        """`random`, `plan`, a column or `-column`; raises InvalidInput for anything else."""
        if name == "plan":
            return Order("plan")
        if name == "random":
            if seed == 0:
                return Order("random")
            # An odd factor permutes the 64-bit numbers; the product of 64 and 62 bits fits into HUGEINT.
            factor = (seed * 0x9E3779B97F4A7C15 % _U64 >> 2) | 1
            return Order(f"((mix::HUGEINT * {factor}) % {_U64})", is_rank=False)
        column = self.columns.get(name.removeprefix("-"))
        if column is None or column.rank is None:
            orderable = [item.name for item in self.columns.columns if item.rank is not None]
            message = f"cannot order by {name!r}; use random, plan or one of {', '.join(orderable[:20])} ('-' reverses)"
            raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/order", message)])
        if not name.startswith("-"):
            return Order(column.rank)
        # Missing values stay last, whichever way the others run.
        known = self._count_known(column)
        return Order(f"(CASE WHEN {column.rank} < {known} THEN {known - 1} - {column.rank} ELSE {column.rank} END)")

    def count(self, where: CompiledFilter) -> int:
        if where.sql == "TRUE":
            return self.row_count
        return int(self._rows(f"SELECT count(*) FROM samples WHERE {where.sql}", where.parameters)[0][0])

    def page(
        self,
        where: CompiledFilter,
        order: Order,
        *,
        limit: int,
        after: Place | None = None,
        is_backward: bool = False,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Up to `limit` rows beside a place (or after `offset` rows), in the direction asked for."""
        conditions, parameters = [where.sql], list(where.parameters)
        if after is not None:
            sign = "<" if is_backward else ">"
            conditions.append(f"({order.expression}, manifest_row) {sign} (?, ?)")
            parameters += [after.key, after.manifest_row]
        if offset and order.is_rank and where.sql == "TRUE":
            # Without a filter a jump is a look-up, not a sort of all that lies before it.
            conditions.append(f"{order.expression} >= ?")
            parameters.append(offset)
            offset = 0
        direction = "DESC" if is_backward else "ASC"
        places = self._rows(
            f"SELECT rowid, {order.expression} AS order_key FROM samples WHERE {' AND '.join(conditions)} "
            f"ORDER BY order_key {direction}, manifest_row {direction} LIMIT ? OFFSET ?",
            [*parameters, limit, offset],
        )
        return self._whole_rows(places)

    def _whole_rows(self, places: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Wide rows are read for the page alone; sorting them all is what makes a list slow."""
        if not places:
            return []
        marks = ", ".join("?" for _ in places)
        sql = f"SELECT *, rowid AS place FROM samples WHERE rowid IN ({marks})"
        found = {row["place"]: row for row in self._table(sql, [place for place, _ in places]).to_pylist()}
        return [{**found[place], "order_key": int(key)} for place, key in places]

    def sample(self, sample_id: UUID) -> dict[str, Any] | None:
        """The row of one sample, by the index on its id."""
        rows = self._table("SELECT * FROM samples WHERE id = ?", [sample_id.bytes]).to_pylist()
        return rows[0] if rows else None

    def facet(self, name: str, where: CompiledFilter) -> Facet:
        column = self.columns.get(name)
        if column is None:
            message = f"there is no column {name!r}; there are {', '.join(self.columns.names[:20])}"
            raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/columns", message)])
        if column.kind in ("int", "float", "timestamp"):
            return self._range(column, where)
        return self._value_counts(column, where)

    def select(self, expressions: Sequence[str], where: CompiledFilter) -> pa.Table:
        """Whole columns (our own expressions) of the rows of a filter, in plan order."""
        return self._table(
            f"SELECT {', '.join(expressions)} FROM samples WHERE {where.sql} ORDER BY plan",
            where.parameters,
        )

    def _count_known(self, column: QueryColumn) -> int:
        return int(self._rows(f"SELECT count({column.physical}) FROM samples", ())[0][0])

    def _range(self, column: QueryColumn, where: CompiledFilter) -> Facet:
        name = column.physical
        sql = f"SELECT min({name}), max({name}) FROM samples WHERE {where.sql}"
        low, high = self._rows(sql, where.parameters)[0]
        if column.kind == "timestamp":
            low, high = (None if value is None else f"{value.isoformat()}Z" for value in (low, high))
        return Facet(column.name, None, low, high)

    def _value_counts(self, column: QueryColumn, where: CompiledFilter) -> Facet:
        name = f"unnest({column.physical})" if column.kind == "multi_category" else column.physical
        sql = (
            f"SELECT value, count(*) AS n FROM (SELECT {name} AS value FROM samples WHERE {where.sql}) "
            "GROUP BY value ORDER BY n DESC, value LIMIT ?"
        )
        rows = self._rows(sql, [*where.parameters, MAX_FACET_VALUES])
        if column.values is None:
            return Facet(column.name, [(value, int(count)) for value, count in rows])
        named = [(None if code is None else column.values[code], int(count)) for code, count in rows]
        return Facet(column.name, list(named))

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._cursor() as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(sql, list(parameters)).fetchall()
            return rows

    def _table(self, sql: str, parameters: Sequence[Any]) -> pa.Table:
        with self._cursor() as cursor:
            answer: Any = cursor.sql(sql, params=list(parameters)).to_arrow_table()
            table: pa.Table = answer
            return table

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self._connection.cursor()
        watchdog = threading.Timer(QUERY_SECONDS, cursor.interrupt)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield cursor
        except duckdb.InterruptException:
            raise TooLarge(
                ErrorCode.REQUEST_TOO_LARGE,
                f"the query took longer than {QUERY_SECONDS:.0f} s and was stopped; use a narrower filter",
            ) from None
        finally:
            watchdog.cancel()
            cursor.close()
