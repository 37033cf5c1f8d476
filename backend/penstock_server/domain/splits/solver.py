"""Who goes where: a pure function of (groups, classes, targets, seed), the same on every machine.

Decisions use whole numbers or single floating-point operations in a fixed order, and ties come from a keyed hash: never
from ids, the order of rows or a library's random numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

UNUSED = -1
_PERSON = b"penstock-split-1"
_ROUNDS = 20
_MAX_SWAP_GROUPS = 500
# A move must gain more than rounding could: it is what ends the search.
_EPSILON = 1e-9


class Infeasible(Exception):
    """No assignment can fulfil the recipe; `nearest` says what would be possible."""

    def __init__(self, reason: str, nearest: str) -> None:
        super().__init__(f"{reason}; {nearest}")
        self.reason = reason
        self.nearest = nearest


@dataclass(frozen=True)
class Unit:
    """What moves as a whole: a group, or a single sample. `classes` are (class, count) pairs, sorted by class."""

    key: tuple[str, ...]
    size: int
    classes: tuple[tuple[int, int], ...]


def tie_hash(seed: int, parts: Sequence[str]) -> bytes:
    """A keyed hash of names; unlike their order it says nothing about them."""
    digest = hashlib.blake2b(digest_size=16, key=str(seed).encode(), person=_PERSON)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.digest()


def subset_sizes(total: int, ratios: Sequence[float | None], counts: Sequence[int | None]) -> list[int]:
    """How many samples each subset shall have: counts as given, ratios by largest remainder, none empty.

    Exactly one of ratio and count is set for each subset.
    """
    names = len(ratios)
    if total < names:
        raise Infeasible(
            f"{names} subsets need at least {names} samples, but only {total} match",
            f"use at most {total} subsets" if total else "relax the filter",
        )
    asked = sum(count for count in counts if count is not None)
    ideal = [ratio * total for ratio in ratios if ratio is not None]
    # A hair of tolerance: 0.7 + 0.2 + 0.1 is not 1 in binary.
    if asked + sum(ideal) > total * (1 + 1e-9):
        raise Infeasible(
            f"the subsets ask for {asked + sum(ideal):.0f} samples, but only {total} match",
            f"ask for at most {total} samples, or ratios of at most 1, in all",
        )
    room = min(total, int(sum(ideal) + asked + 0.5 + 1e-9)) - asked
    shares = iter(_largest_remainder(ideal, room))
    sizes = [count if count is not None else next(shares) for count in counts]
    for index in (index for index, size in enumerate(sizes) if size == 0):
        # From what nobody asked for, else from the largest subset that is a ratio.
        if sum(sizes) == total:
            giver = max((other for other in range(names) if counts[other] is None), key=lambda other: sizes[other])
            sizes[giver] -= 1
        sizes[index] = 1
    return sizes


def _largest_remainder(ideal: Sequence[float], total: int) -> list[int]:
    sizes = [int(value + 1e-9) for value in ideal]
    left = total - sum(sizes)
    order = sorted(range(len(ideal)), key=lambda index: (-(ideal[index] - sizes[index]), index))
    for index in order[: max(left, 0)]:
        sizes[index] += 1
    return sizes


def assign_singles(strata: Sequence[tuple[str, ...]], ties: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
    """Independent samples: exact sizes, each stratum shared out in proportion to within one or two samples.

    Samples are lined up by (stratum, hash); each goes to the subset that is furthest behind its share so far.
    """
    total = len(strata)
    targets = [*sizes, total - sum(sizes)]
    assigned = [0] * len(targets)
    result = [UNUSED] * total
    order = sorted(range(total), key=lambda index: (strata[index], ties[index]))
    for step, index in enumerate(order, start=1):
        best, best_lag = len(sizes), None
        for subset, target in enumerate(targets):
            if assigned[subset] < target:
                lag = step * target - assigned[subset] * total
                if best_lag is None or lag > best_lag:
                    best, best_lag = subset, lag
        assigned[best] += 1
        result[index] = best if best < len(sizes) else UNUSED
    return result


def assign_groups(units: Sequence[Unit], ties: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
    """Whole groups: greedy from the largest to the smallest, then moves and swaps while they help.

    The last, unnamed target takes what the recipe leaves unused; it alone may stay empty.
    """
    total = sum(unit.size for unit in units)
    if len(units) < len(sizes):
        raise Infeasible(
            f"{len(sizes)} subsets without a shared group need at least {len(sizes)} groups, "
            f"but only {len(units)} match",
            f"use at most {len(units)} subsets, or group by a finer column" if units else "relax the filter",
        )
    plan = _GroupPlan(units, [*sizes, total - sum(sizes)], named=len(sizes))
    order = sorted(range(len(units)), key=lambda index: (-units[index].size, ties[index]))
    for unit in order:
        plan.place(unit, plan.best_for(unit))
    plan.fill_empty(order)
    by_hash = sorted(range(len(units)), key=lambda index: ties[index])
    for _ in range(_ROUNDS):
        has_moved = plan.improve_by_moves(by_hash)
        if len(units) <= _MAX_SWAP_GROUPS:
            has_moved |= plan.improve_by_swaps(by_hash)
        if not has_moved:
            break
    return [subset if subset < len(sizes) else UNUSED for subset in plan.where]


class _GroupPlan:
    """An assignment in the making; its cost is the sum of (got - wanted)^2 / wanted over sizes and classes."""

    def __init__(self, units: Sequence[Unit], targets: Sequence[int], *, named: int) -> None:
        self._named = named
        total = sum(targets)
        classes: dict[int, int] = {}
        for unit in units:
            for name, count in unit.classes:
                classes[name] = classes.get(name, 0) + count
        # Column 0 is the size and weighs as much as all classes together, so no class is bought with a wrong size.
        self._column = {name: column for column, name in enumerate(sorted(classes), start=1)}
        weight = float(max(1, len(classes)))
        self._vectors = [
            [(0, float(unit.size), weight), *((self._column[name], float(count), 1.0) for name, count in unit.classes)]
            for unit in units
        ]
        # A target of nothing still needs a number to divide by; half a sample makes it costly to fill.
        shares = [max(target, 0.5) / total for target in targets]
        self._wanted = [[share * total, *(share * classes[name] for name in sorted(classes))] for share in shares]
        self._got = [[0.0] * (1 + len(classes)) for _ in targets]
        self._members = [0] * len(targets)
        # The unused rest counts as a target only when the recipe leaves something over.
        self._open = [index for index, target in enumerate(targets) if index < named or target > 0]
        self.where = [UNUSED] * len(units)

    def place(self, unit: int, subset: int) -> None:
        if self.where[unit] != UNUSED:
            self._add(unit, self.where[unit], -1.0)
        self._add(unit, subset, 1.0)
        self.where[unit] = subset

    def best_for(self, unit: int) -> int:
        return min(self._open, key=lambda subset: (self._gain(unit, subset, 1.0), subset))

    def fill_empty(self, order: Sequence[int]) -> None:
        """Greedy may leave a small subset empty; give it the group whose move costs least."""
        for subset in range(self._named):
            if self._members[subset]:
                continue
            movable = [unit for unit in order if self.where[unit] >= self._named or self._members[self.where[unit]] > 1]
            unit = min(movable, key=lambda index: self._move_cost(index, subset))
            self.place(unit, subset)

    def improve_by_moves(self, order: Sequence[int]) -> bool:
        has_moved = False
        for unit in order:
            source = self.where[unit]
            if source < self._named and self._members[source] == 1:
                continue
            others = [(self._move_cost(unit, subset), subset) for subset in self._open if subset != source]
            if others and min(others)[0] < -_EPSILON:
                self.place(unit, min(others)[1])
                has_moved = True
        return has_moved

    def improve_by_swaps(self, order: Sequence[int]) -> bool:
        has_moved = False
        for position, first in enumerate(order):
            for second in order[position + 1 :]:
                here, there = self.where[first], self.where[second]
                if here != there and self._swap_cost(first, second) < -_EPSILON:
                    self.place(first, there)
                    self.place(second, here)
                    has_moved = True
        return has_moved

    def _move_cost(self, unit: int, subset: int) -> float:
        return self._gain(unit, self.where[unit], -1.0) + self._gain(unit, subset, 1.0)

    def _swap_cost(self, first: int, second: int) -> float:
        here, there = self.where[first], self.where[second]
        cost = self._move_cost(first, there)
        self._add(first, here, -1.0)
        self._add(first, there, 1.0)
        cost += self._gain(second, there, -1.0) + self._gain(second, here, 1.0)
        self._add(first, there, -1.0)
        self._add(first, here, 1.0)
        return cost

    def _gain(self, unit: int, subset: int, sign: float) -> float:
        got, wanted = self._got[subset], self._wanted[subset]
        cost = 0.0
        for column, count, weight in self._vectors[unit]:
            change = sign * count
            cost += weight * (change * (2.0 * (got[column] - wanted[column]) + change) / wanted[column])
        return cost

    def _add(self, unit: int, subset: int, sign: float) -> None:
        got = self._got[subset]
        for column, count, _ in self._vectors[unit]:
            got[column] += sign * count
        self._members[subset] += 1 if sign > 0 else -1
