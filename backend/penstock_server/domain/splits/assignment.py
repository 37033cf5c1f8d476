"""From the rows of a version and a recipe to who is in which subset, and the report about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.codes import ErrorCode
from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.domain.splits.schemas import SplitRecipe
from penstock_server.domain.splits.solver import (
    UNUSED,
    Infeasible,
    Unit,
    assign_groups,
    assign_singles,
    subset_sizes,
    tie_hash,
)
from penstock_server.errors import FieldProblem, InvalidInput, JsonValue

_GROUP_KINDS = ("category", "text", "int", "bool")
_STRATUM_KINDS = ("category", "multi_category", "bool", "int")
_MAX_CLASSES = 1000


@dataclass(frozen=True)
class Assignment:
    """`subset_of` has a subset's index, or UNUSED, for each row; the rest is for the report."""

    subset_of: np.ndarray
    asked: list[int]
    groups: list[str | None] | None
    unused: dict[str, int]
    warnings: list[str]


def assign(rows: pa.Table, schema: DatasetSchema, recipe: SplitRecipe) -> Assignment:
    """Solve a recipe on rows of the query copy; raises InvalidInput (recipe_invalid, infeasible)."""
    group_column = None if recipe.group_by is None else _column(schema, recipe.group_by, "group_by", _GROUP_KINDS)
    strata_columns = [_column(schema, name, "stratify_by", _STRATUM_KINDS) for name in recipe.stratify_by]
    strata = [texts_of(rows, schema, column) for column in strata_columns]
    for column, values in zip(strata_columns, strata, strict=True):
        if len(set(values)) > _MAX_CLASSES:
            raise _invalid("stratify_by", f"{column.name!r} has more than {_MAX_CLASSES} values; use a coarser column")
    try:
        if group_column is None:
            return _by_sample(rows, recipe, strata)
        return _by_group(rows, recipe, texts_of(rows, schema, group_column), strata)
    except Infeasible as error:
        raise InvalidInput(
            ErrorCode.SPLIT_INFEASIBLE,
            f"this split is not possible: {error.reason}; {error.nearest}",
            context={"reason": error.reason, "nearest": error.nearest},
        ) from None


def _by_sample(rows: pa.Table, recipe: SplitRecipe, strata: Sequence[Sequence[str | None]]) -> Assignment:
    sizes = _sizes(recipe, rows.num_rows)
    sources, keys = (rows[name].to_pylist() for name in ("source", "key"))
    ties = [tie_hash(recipe.seed, [str(source), str(key)]) for source, key in zip(sources, keys, strict=True)]
    classes = [_stratum(values) for values in zip(*strata, strict=True)] if strata else [()] * rows.num_rows
    subset_of = np.array(assign_singles(classes, ties, sizes), dtype=np.int64)
    unused = {"not_asked": int((subset_of == UNUSED).sum())}
    return Assignment(subset_of, sizes, None, unused, [])


def _by_group(
    rows: pa.Table, recipe: SplitRecipe, groups: list[str | None], strata: Sequence[Sequence[str | None]]
) -> Assignment:
    """Rows without a group are left out: nobody can say that they are not somebody else's."""
    named = [index for index, group in enumerate(groups) if group is not None]
    if len(named) < rows.num_rows and not named:
        raise Infeasible(f"no sample has a value in {recipe.group_by!r}", "group by another column")
    sizes = _sizes(recipe, len(named))
    units, warnings = _units(groups, named, strata, len(sizes))
    ties = [tie_hash(recipe.seed, unit.key) for unit in units]
    where = dict(zip((unit.key[0] for unit in units), assign_groups(units, ties, sizes), strict=True))
    subset_of = np.array([UNUSED if group is None else where[group] for group in groups], dtype=np.int64)
    no_group = rows.num_rows - len(named)
    if no_group:
        warnings.append(f"{no_group} samples have no value in {recipe.group_by!r} and are left out")
    unused = {"not_asked": int((subset_of == UNUSED).sum()) - no_group, "no_group": no_group}
    return Assignment(subset_of, sizes, groups, unused, warnings)


def _units(
    groups: Sequence[str | None], named: Sequence[int], strata: Sequence[Sequence[str | None]], subset_count: int
) -> tuple[list[Unit], list[str]]:
    """Groups with their class counts, in order of their names, and a word about classes that cannot be spread."""
    sizes: Counter[str] = Counter()
    counts: dict[str, Counter[tuple[int, str]]] = {}
    for index in named:
        group = str(groups[index])
        sizes[group] += 1
        members = counts.setdefault(group, Counter())
        for column, values in enumerate(strata):
            for value in _labels(values[index]):
                members[column, value] += 1
    classes = sorted({name for members in counts.values() for name in members})
    codes = {name: code for code, name in enumerate(classes)}
    units = [
        Unit((group,), sizes[group], tuple(sorted((codes[name], count) for name, count in counts[group].items())))
        for group in sorted(sizes)
    ]
    spread = Counter(name for members in counts.values() for name in members)
    rare = [name for name in classes if spread[name] < subset_count]
    warnings = [
        f"class {value!r} is in {spread[column, value]} groups, {subset_count} subsets need {subset_count}"
        for column, value in rare[:20]
    ]
    return units, warnings


def _sizes(recipe: SplitRecipe, total: int) -> list[int]:
    return subset_sizes(total, [subset.ratio for subset in recipe.subsets], [subset.count for subset in recipe.subsets])


def _column(schema: DatasetSchema, name: str, role: str, kinds: Sequence[str]) -> ColumnSchema:
    column = schema.column(name)
    if column is None:
        known = ", ".join(item.name for item in schema.columns if item.kind in kinds) or "none"
        message = f"{role} names {name!r}, which is no column of this version; possible are: {known}"
    elif column.kind not in kinds:
        message = f"{role} cannot use {name!r}: it is of kind {column.kind}, possible are {', '.join(kinds)}"
    else:
        return column
    raise _invalid(role, message)


def _invalid(role: str, message: str) -> InvalidInput:
    return InvalidInput(ErrorCode.SPLIT_RECIPE_INVALID, message, errors=[FieldProblem(f"/recipe/{role}", message)])


def texts_of(rows: pa.Table, schema: DatasetSchema, column: ColumnSchema) -> list[str | None]:
    """The values of a column as text; sets of categories joined by a character that no value has."""
    stored = rows[f"c{schema.columns.index(column)}"].to_pylist()
    names = column.values or []
    if column.kind == "category":
        return [None if code is None else names[code] for code in stored]
    if column.kind == "multi_category":
        return [None if codes is None else "\x00".join(names[code] for code in codes) for codes in stored]
    return [None if value is None else str(value) for value in stored]


def _labels(value: str | None) -> list[str]:
    return value.split("\x00") if value else []


def _stratum(values: Sequence[str | None]) -> tuple[str, ...]:
    return tuple("" if value is None else f"={value}" for value in values)


def report_of(rows: pa.Table, schema: DatasetSchema, recipe: SplitRecipe, assignment: Assignment) -> dict[str, Any]:
    """Asked against achieved is with the subsets; here the proof that nothing leaks, and what was left out."""
    contents = _contents(rows, schema)
    shared_content = _shared(contents, assignment.subset_of)
    shared_groups = 0 if assignment.groups is None else _shared(assignment.groups, assignment.subset_of)
    warnings = list(assignment.warnings)
    if shared_content:
        warnings.append(f"{shared_content} equal files are in more than one subset; group by a column that joins them")
    if recipe.group_by is None:
        warnings.append("no group_by: samples are taken to be independent of each other")
    return {
        "format": 1,
        "samples": rows.num_rows,
        "group_by": recipe.group_by,
        "groups": None if assignment.groups is None else len(set(assignment.groups) - {None}),
        "shared_groups": shared_groups,
        "shared_content": shared_content,
        "contents": len(set(contents)),
        "unused": assignment.unused,
        "classes": _class_shares(rows, schema, recipe, assignment),
        "warnings": warnings,
    }


def _contents(rows: pa.Table, schema: DatasetSchema) -> list[bytes]:
    columns = [rows[f"f{index}_blake3"].to_pylist() for index in range(len(schema.fields))]
    return [b"".join(parts) for parts in zip(*columns, strict=True)]


def _shared(names: Sequence[object], subset_of: np.ndarray) -> int:
    """How many names are in more than one subset; computed from the result, not from how it was made."""
    seen: dict[object, int] = {}
    shared = set()
    for name, subset in zip(names, subset_of.tolist(), strict=True):
        if subset != UNUSED and name is not None and seen.setdefault(name, subset) != subset:
            shared.add(name)
    return len(shared)


def class_counts(values: Sequence[str | None], subset_of: np.ndarray, subset: int) -> dict[str, int]:
    chosen = Counter[str]()
    for index in np.flatnonzero(subset_of == subset).tolist():
        chosen.update(_labels(values[index]))
    return dict(sorted(chosen.items()))


def counted_columns(schema: DatasetSchema, recipe: SplitRecipe) -> list[ColumnSchema]:
    """The columns whose classes are counted: the label first, then what the recipe keeps alike."""
    label = schema.label
    names = [] if label is None or label.kind not in _STRATUM_KINDS else [label.name]
    names += [name for name in recipe.stratify_by if name not in names]
    return [column for name in names if (column := schema.column(name)) is not None]


def _class_shares(
    rows: pa.Table, schema: DatasetSchema, recipe: SplitRecipe, assignment: Assignment
) -> dict[str, JsonValue]:
    shares: dict[str, JsonValue] = {}
    for column in counted_columns(schema, recipe):
        values = texts_of(rows, schema, column)
        if len(set(values)) > _MAX_CLASSES:
            continue
        shares[column.name] = {
            subset.name: dict(class_counts(values, assignment.subset_of, index))
            for index, subset in enumerate(recipe.subsets)
        }
    return shares
