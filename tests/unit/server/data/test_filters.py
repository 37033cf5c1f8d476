"""The filter language: what it means, what it refuses and where, and that no text of a user becomes SQL."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.server.data.builders import SCHEMA

from penstock.contract.codes import ErrorCode
from penstock_server.errors import InvalidInput
from penstock_server.manifests.columns import query_columns
from penstock_server.manifests.filters import MAX_BYTES, compile_filter

COLUMNS = query_columns(SCHEMA)


@pytest.mark.parametrize(
    ("text", "sql", "parameters"),
    [
        ("", "TRUE", ()),
        ("tumor = 'yes'", "(c0 IN (?))", (1,)),
        ("tumor != 'yes'", "(NOT (c0 IN (?)))", (1,)),
        ("tumor NOT IN ('yes', 'no')", "(NOT (c0 IN (?, ?)))", (1, 0)),
        ("tumor LIKE 'y%'", "(c0 IN (SELECT code FROM d0 WHERE value LIKE ?))", ("y%",)),
        ("tags = 'ink'", "(coalesce(list_has_any(c2, [?]), FALSE))", (1,)),
        ("30 <= age", "(c3 >= ?)", (30,)),
        ("age BETWEEN -1 AND 2.5", "(c3 BETWEEN ? AND ?)", (-1, 2.5)),
        ("age NOT BETWEEN 1 AND 2", "(NOT (c3 BETWEEN ? AND ?))", (1, 2)),
        ("score = -1.5e3", "(c4 = ?)", (-1500.0,)),
        ("checked", "(c5 = TRUE)", ()),
        ("NOT checked = false", "(NOT (c5 = ?))", (False,)),
        ("remark NOT LIKE 'a%'", "(NOT (c6 LIKE ?))", ("a%",)),
        ("remark = 'it''s; DROP TABLE samples --'", "(c6 = ?)", ("it's; DROP TABLE samples --",)),
        ("taken >= '2026-01-02T00:00:00+02:00'", "(c7 >= ?)", (datetime.datetime(2026, 1, 1, 22),)),
        ("age IS NULL OR age IS NOT NULL", "((c3 IS NULL) OR (NOT (c3 IS NULL)))", ()),
        ("width > 96 and (height < 9 or source = 'x')", "((f0_width > ?) AND ((f0_height < ?) OR (source = ?)))",
         (96, 9, "x")),
    ],
)  # fmt: skip
def test_filter_compiles_to_bound_sql(text: str, sql: str, parameters: tuple[object, ...]) -> None:
    compiled = compile_filter(text, COLUMNS)
    assert (compiled.sql, compiled.parameters) == (sql, parameters)


@pytest.mark.parametrize(
    ("text", "position", "word"),
    [
        ("tumour = 'yes'", 0, "did you mean 'tumor'"),
        ("tumor = 'maybe'", 8, "has no value 'maybe'"),
        ("age > 3 AND nope = 1", 12, "no column 'nope'"),
        ("tumor > 'no'", 0, "no order"),
        ("age = 'x'", 6, "compare it with a number"),
        ("age = NULL", 0, "IS NULL"),
        ("age = 1; DELETE FROM samples", 7, "not part of the filter language"),
        ("age", 0, "compare it with a value"),
        ("1 = 1", 0, "a column must stand here"),
        ("taken = '2026-13-01'", 8, "no time"),
        ("remark = 'x", 10, "quote"),
        ("age IN ()", 0, "list of values"),
        ("checked < true", 0, "true or false"),
    ],
)
def test_filter_error_says_what_and_where(text: str, position: int, word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        compile_filter(text, COLUMNS)
    assert caught.value.code == ErrorCode.FILTER_INVALID
    assert caught.value.context["position"] == position
    assert word in caught.value.detail


HOSTILE = [
    "age = 1 UNION SELECT 1", "age IN (SELECT 1)", "lower(remark) = 'x'", "read_csv('/etc/passwd') = 1",
    "remark = 'a' || 'b'", "age::text = 'x'", "CAST(age AS text) = 'x'", "CASE WHEN checked THEN checked END",
    "remark ILIKE 'x'", "remark SIMILAR TO 'x'", "remark ~ 'x'", "age = ?", "age = $1", "age = :x", "age = @x",
    "samples.age = 1", "EXISTS (SELECT 1)", "age = age", "COPY samples TO 'x'", "PRAGMA version", "ATTACH 'x'",
    "age = 1 OR", "AND", "()", "((", "age = ((1)", "age = 1 = 1", "remark LIKE 'a' ESCAPE '!'", "remark LIKE ANY ('a')",
    "age = 0x1F", "age = 1e999", "age = " + "9" * 500, "age = {'a': 1}", "age = [1]", "age[0] = 1", "x -> x + 1",
    "INTERVAL 1 day = 1", "remark = \"x\"", "`age` = 1", "age = 1 LIMIT 1", "* = 1", "age = 1, age = 2", "\x00",
    "age = 1 \ud800", "NOT", "- - -", "age = -", "age BETWEEN 1", "age IS 3", "checked IS TRUE", "age = 1 -- \n OR x",
    "remark = e'\\x41'", "remark = N'x'", "taken = '0001-01-01T00:00:00+23:59'", "age @> 1", "age % 2 = 0",
    "NOT " * 60 + "checked", "(" * 60 + "checked" + ")" * 60, "-" * 200 + "1 = age", "[" * 500, "{" * 500,
    "CASE " * 300, "age" + ".age" * 500, "age = 1 " + "AND (" * 100,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        compile_filter(text, COLUMNS)
    assert caught.value.code == ErrorCode.FILTER_INVALID


def test_filter_of_many_ors_compiles_and_a_longer_one_is_refused() -> None:
    text = " OR ".join(["age=1"] * 900)
    assert len(text) <= MAX_BYTES
    assert len(compile_filter(text, COLUMNS).parameters) == 900
    with pytest.raises(InvalidInput, match="longer than"):
        compile_filter(" OR ".join(["age=1"] * 2000), COLUMNS)


def test_filter_depth_limit_is_fifty() -> None:
    assert compile_filter("(" * 45 + "checked" + ")" * 45, COLUMNS).sql == "(c5 = TRUE)"
    with pytest.raises(InvalidInput, match="deeper than"):
        compile_filter("(" * 51 + "checked" + ")" * 51, COLUMNS)


_WORDS = st.sampled_from(
    ["age", "tumor", "remark", "checked", "tags", "taken", "=", "!=", "<", "AND", "OR", "NOT", "IN", "LIKE", "IS",
     "NULL", "BETWEEN", "(", ")", ",", "'yes'", "'x'", "1", "-", "2.5", "TRUE", "nope", ";", "SELECT", "''", "\"age\""]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=14).map(" ".join)))
def test_any_text_compiles_or_is_refused_with_a_position(text: str) -> None:
    refusal = compiled = None
    try:
        compiled = compile_filter(text, COLUMNS)
    except InvalidInput as error:
        refusal = error
    if compiled is not None:
        assert compiled.sql.count("?") == len(compiled.parameters)
        assert "'" not in compiled.sql
    else:
        assert refusal is not None
        assert refusal.code == ErrorCode.FILTER_INVALID
        assert isinstance(refusal.context["position"], int)
