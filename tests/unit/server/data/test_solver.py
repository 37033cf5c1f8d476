"""The split solver: a pure function, never a shared group, never an empty subset, sizes as asked."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_server.domain.splits.solver import (
    UNUSED,
    Infeasible,
    Unit,
    assign_groups,
    assign_singles,
    subset_sizes,
    tie_hash,
)

_RATIOS = st.lists(st.floats(0.02, 1.0), min_size=1, max_size=6).map(
    lambda values: [value / max(1.0, sum(values)) for value in values]
)


def test_tie_hash_golden_vectors() -> None:
    """Every machine and release orders alike: a change here changes every split that users make again."""
    assert tie_hash(0, ["p1"]).hex() == "f3b488eec5e8564fa92f7c9a6b646a43"
    assert tie_hash(7, ["slide", "0_0.png"]).hex() == "0912950369bf39eaf6a1171f9f73dc89"
    assert tie_hash(7, ["slide0", "_0.png"]) != tie_hash(7, ["slide", "0_0.png"])


@pytest.mark.parametrize(
    ("total", "ratios", "expected"),
    [
        (10, [0.7, 0.15, 0.15], [7, 2, 1]),
        (3000, [0.7, 0.15, 0.15], [2100, 450, 450]),
        (10, [0.5, 0.2], [5, 2]),
        (3, [0.98, 0.01, 0.01], [1, 1, 1]),
        (1000, [0.7, 0.2, 0.1], [700, 200, 100]),
        (7, [1 / 3, 1 / 3, 1 / 3], [3, 2, 2]),
    ],
)
def test_sizes_by_largest_remainder(total: int, ratios: list[float], expected: list[int]) -> None:
    assert subset_sizes(total, ratios, [None] * len(ratios)) == expected


def test_counts_and_ratios_together_and_too_many() -> None:
    assert subset_sizes(100, [None, 0.5], [20, None]) == [20, 50]
    with pytest.raises(Infeasible, match="only 100 match"):
        subset_sizes(100, [None, 0.5], [60, None])
    with pytest.raises(Infeasible, match="use at most 2 subsets"):
        subset_sizes(2, [0.3, 0.3, 0.4], [None] * 3)
    with pytest.raises(Infeasible, match="relax the filter"):
        subset_sizes(0, [1.0], [None])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), _RATIOS)
def test_sizes_are_never_empty_and_within_one_of_the_share(total: int, ratios: list[float]) -> None:
    if total < len(ratios):
        return
    sizes = subset_sizes(total, ratios, [None] * len(ratios))
    assert all(size >= 1 for size in sizes)
    assert sum(sizes) <= total
    if min(ratios) * total >= 1:
        assert all(abs(size - ratio * total) < 1.5 for size, ratio in zip(sizes, ratios, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=6, max_size=200), _RATIOS, st.integers(0, 9), st.randoms())
def test_singles_have_exact_sizes_and_do_not_depend_on_row_order(
    classes: list[str], ratios: list[float], seed: int, shuffler: random.Random
) -> None:
    sizes = subset_sizes(len(classes), ratios, [None] * len(ratios))
    rows = [((name,), tie_hash(seed, ["s", str(index)])) for index, name in enumerate(classes)]
    result = assign_singles([row[0] for row in rows], [row[1] for row in rows], sizes)
    counts = Counter(result)
    assert [counts[index] for index in range(len(sizes))] == sizes
    shuffled = list(range(len(rows)))
    shuffler.shuffle(shuffled)
    other = assign_singles([rows[i][0] for i in shuffled], [rows[i][1] for i in shuffled], sizes)
    assert other == [result[i] for i in shuffled]
    for name in set(classes):
        members = [result[index] for index, value in enumerate(classes) if value == name]
        for index, size in enumerate(sizes):
            assert abs(members.count(index) - len(members) * size / len(classes)) <= 1 + len(sizes)


_GROUPS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(lambda pair: sum(pair) > 0), min_size=1, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(_GROUPS, _RATIOS, st.integers(0, 5), st.randoms())
def test_groups_are_deterministic_and_no_subset_is_empty(
    counts: list[tuple[int, int]], ratios: list[float], seed: int, shuffler: random.Random
) -> None:
    units = [
        Unit((f"g{index:03}",), sum(pair), tuple((name, count) for name, count in enumerate(pair) if count))
        for index, pair in enumerate(counts)
    ]
    ties = [tie_hash(seed, unit.key) for unit in units]
    total = sum(unit.size for unit in units)
    try:
        sizes = subset_sizes(total, ratios, [None] * len(ratios))
        result = assign_groups(units, ties, sizes)
    except Infeasible:
        assert len(units) < len(ratios) or total < len(ratios)
        return
    assert set(range(len(ratios))) <= set(result)
    if sum(sizes) == total:
        assert UNUSED not in result
    shuffled = list(range(len(units)))
    shuffler.shuffle(shuffled)
    other = assign_groups([units[i] for i in shuffled], [ties[i] for i in shuffled], sizes)
    assert other == [result[i] for i in shuffled]


def test_groups_come_close_to_targets_in_size_and_class() -> None:
    chooser = random.Random(3)
    units = []
    for index in range(60):
        positive = chooser.randint(0, 20) if index % 3 == 0 else 0
        negative = chooser.randint(30, 60)
        units.append(Unit((f"p{index}",), positive + negative, ((0, negative), *([(1, positive)] if positive else []))))
    total = sum(unit.size for unit in units)
    positives = sum(dict(unit.classes).get(1, 0) for unit in units)
    sizes = subset_sizes(total, [0.7, 0.15, 0.15], [None] * 3)
    where = assign_groups(units, [tie_hash(7, unit.key) for unit in units], sizes)
    for subset, share in enumerate([0.7, 0.15, 0.15]):
        chosen = [unit for unit, place in zip(units, where, strict=True) if place == subset]
        assert abs(sum(unit.size for unit in chosen) / total - share) < 0.02
        assert abs(sum(dict(unit.classes).get(1, 0) for unit in chosen) / positives - share) < 0.04


def test_seed_changes_the_result_and_the_same_seed_does_not() -> None:
    units = [Unit((f"p{index}",), 10, ()) for index in range(30)]
    sizes = subset_sizes(300, [0.5, 0.5], [None, None])

    def solved(seed: int) -> list[int]:
        return assign_groups(units, [tie_hash(seed, unit.key) for unit in units], sizes)

    assert solved(1) == solved(1)
    assert solved(1) != solved(2)


def test_assignment_golden_vector() -> None:
    """Whole solutions are written down too: the same recipe must give the same patients in every release."""
    units = [Unit((f"p{index:02}",), 10 + index % 4, ((index % 2, 10 + index % 4),)) for index in range(12)]
    sizes = subset_sizes(sum(unit.size for unit in units), [0.6, 0.2, 0.2], [None] * 3)
    where = assign_groups(units, [tie_hash(7, unit.key) for unit in units], sizes)
    assert "".join(map(str, where)) == "002200010010"
    singles = assign_singles([("a",)] * 6 + [("b",)] * 6, [tie_hash(7, ["s", str(n)]) for n in range(12)], [7, 3])
    assert singles == [0, -1, 0, 1, 0, 0, 0, -1, 0, 0, 1, 1]


def test_fewer_groups_than_subsets_says_what_would_do() -> None:
    units = [Unit(("a",), 50, ()), Unit(("b",), 50, ())]
    with pytest.raises(Infeasible, match="use at most 2 subsets"):
        assign_groups(units, [b"a", b"b"], [40, 30, 30])


def test_one_huge_group_still_leaves_no_subset_empty() -> None:
    units = [Unit(("big",), 1000, ()), Unit(("a",), 1, ()), Unit(("b",), 1, ())]
    where = assign_groups(units, [tie_hash(0, unit.key) for unit in units], [334, 334, 334])
    assert sorted(where) == [0, 1, 2]
