from typing import Any

import pytest

from penstock_workers.readers.values import NotOfKind, infer_kind, to_value


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], "text"),
        (["1", None, "-3"], "int"),
        (["1", "2.5"], "float"),
        (["0", "1", "1"], "int"),
        (["true", "False"], "bool"),
        (["yes", "no", "yes", "no"], "category"),
        (["a", "b", "c"], "text"),
        (["2026-05-31", "2026-05-31T10:00:00Z"], "timestamp"),
        (["2026", "2027"], "int"),
        (["20260531", "20260601"], "int"),
        (["99999999999999999999", "1"], "float"),
        (["1_000", "2"], "text"),
        ([True, None], "bool"),
        ([1, 2.5], "float"),
        ([["a"], None], "multi_category"),
        ([str(n) + "x" for n in range(300)] * 2, "text"),
    ],
)
def test_kind_is_the_narrowest_that_holds_all(cells: list[Any], kind: str) -> None:
    assert infer_kind(cells) == kind


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        (None, "int", None),
        ("7", "int", 7),
        ("nan", "float", None),
        (3, "float", 3.0),
        ("a; b ;", "multi_category", ["a", "b"]),
        (["a", None], "multi_category", ["a"]),
        (5, "category", "5"),
        ("2026-05-31T10:00:00-02:00", "timestamp", "2026-05-31T12:00:00+00:00"),
    ],
)
def test_cell_becomes_a_value(cell: Any, kind: Any, value: Any) -> None:
    assert to_value(cell, kind) == value


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("x", "int"), ("1.5", "int"), (2**63, "int"), ("inf", "float"), ("maybe", "bool"),
        ("yesterday", "timestamp"), (5, "timestamp"), ("a\x00b", "text"), (b"raw", "text"),
    ],
)  # fmt: skip
def test_cell_of_another_kind_is_refused(cell: Any, kind: Any) -> None:
    with pytest.raises(NotOfKind):
        to_value(cell, kind)
