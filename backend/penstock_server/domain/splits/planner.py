"""Prepares a split: solves the recipe and writes the members, before any transaction is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock import _native
from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock.contract.records import format_digest
from penstock_server.db import Catalog
from penstock_server.domain.datasets.head import encoded
from penstock_server.domain.splits.assignment import (
    Assignment,
    assign,
    class_counts,
    counted_columns,
    report_of,
    texts_of,
)
from penstock_server.domain.splits.members import MembersWriter, header_for, member_columns, subset_digest
from penstock_server.domain.splits.schemas import SplitCreate, SplitRecipe
from penstock_server.domain.versions.service import VersionPlace, VersionService
from penstock_server.errors import TooLarge
from penstock_server.events import EventBus
from penstock_server.manifests.copies import QueryCopies
from penstock_server.manifests.queries import QueryCopy
from penstock_server.policy import Action, Actor
from penstock_server.store import StoreGateway

MAX_REQUEST_ROWS = 200_000


class PlannerParts(Protocol):
    """What the planner takes of a process's services."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def store(self) -> StoreGateway: ...

    @property
    def bus(self) -> EventBus: ...


@dataclass(frozen=True, kw_only=True)
class PreparedSplit:
    """A solved split whose members are in the store; it has no number and nobody can see it."""

    split_id: UUID
    dataset_id: UUID
    version_id: UUID
    name: str
    digest: str
    recipe: SplitRecipe
    subsets: list[dict[str, Any]]
    atoms: list[dict[str, Any]]
    report: dict[str, Any]
    unused: int


class SplitPlanner:
    """`SplitPlanner(services, copies).prepare(...)`: pure but for the members it stores, so it may be repeated."""

    def __init__(self, services: PlannerParts, copies: QueryCopies) -> None:
        self._services = services
        self._copies = copies

    def prepare(self, reference: str, body: SplitCreate, *, actor: Actor) -> PreparedSplit:
        """Solve the recipe on a version of the dataset; raises InvalidInput with the reason when it cannot be."""
        store = self._services.store
        with self._services.catalog.unit(is_read_only=True) as unit:
            versions = VersionService(unit, store, self._services.bus)
            place = versions.find(reference, body.version, actor=actor, action=Action.SPLIT_CREATE)
            source = versions.parts(place)
        copy = self._copies.open(place.manifest, source)
        rows = _rows(copy, place, body.recipe)
        assignment = assign(rows, place.schema, body.recipe)
        writer = MembersWriter(
            store, place.place.project, place.place.dataset.id, place.schema, header_for(place.schema, rows)
        )
        atoms, subsets = _write(rows, place, body.recipe, assignment, writer)
        return PreparedSplit(
            split_id=uuid7(),
            dataset_id=place.place.dataset.id,
            version_id=place.version.id,
            name=body.name,
            digest=_split_digest(place.version.digest, body.recipe, atoms, subsets),
            recipe=body.recipe,
            subsets=subsets,
            atoms=atoms,
            report=report_of(rows, place.schema, body.recipe, assignment),
            unused=sum(assignment.unused.values()),
        )


def _rows(copy: QueryCopy, place: VersionPlace, recipe: SplitRecipe) -> pa.Table:
    """All that solver, report and members need of the matching rows, in plan order."""
    where = copy.filter(recipe.filter)
    count = copy.count(where)
    if count > MAX_REQUEST_ROWS:
        raise TooLarge(
            ErrorCode.REQUEST_TOO_LARGE,
            f"{count} samples match; splits of more than {MAX_REQUEST_ROWS} are not made in a request: use a filter",
            context={"samples": count, "limit": MAX_REQUEST_ROWS},
        )
    columns = ["id", "manifest_row", "source", "key"]
    for index in range(len(place.schema.fields)):
        columns += [f"f{index}_{name}" for name in ("object", "size", "xxh3", "blake3")]
    wanted = {index for index, _ in member_columns(place.schema)}
    named = {recipe.group_by, *recipe.stratify_by}
    wanted |= {index for index, column in enumerate(place.schema.columns) if column.name in named}
    return copy.select([*columns, *(f"c{index}" for index in sorted(wanted))], where)


def _write(
    rows: pa.Table, place: VersionPlace, recipe: SplitRecipe, assignment: Assignment, writer: MembersWriter
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One atom a subset: ratio splits share nothing; folds will list several."""
    counted = counted_columns(place.schema, recipe)
    values = texts_of(rows, place.schema, counted[0]) if counted else None
    usable = max(1, rows.num_rows - assignment.unused.get("no_group", 0))
    atoms, subsets = [], []
    for index, subset in enumerate(recipe.subsets):
        is_member = assignment.subset_of == index
        parts = writer.write(rows.filter(pa.array(is_member)))
        count = int(is_member.sum())
        atoms.append({"name": subset.name, "rows": count, "parts": [part.to_json() for part in parts]})
        subsets.append(
            {
                "name": subset.name,
                "atoms": [index],
                "count": count,
                "digest": subset_digest(parts),
                "groups": _group_count(assignment, is_member),
                "asked": subset.ratio if subset.ratio is not None else assignment.asked[index] / usable,
                "achieved": count / usable,
                "classes": {} if values is None else class_counts(values, assignment.subset_of, index),
            }
        )
    return atoms, subsets


def _group_count(assignment: Assignment, is_member: np.ndarray) -> int | None:
    if assignment.groups is None:
        return None
    return len({assignment.groups[index] for index in np.flatnonzero(is_member)})


def _split_digest(
    version_digest: str, recipe: SplitRecipe, atoms: list[dict[str, Any]], subsets: list[dict[str, Any]]
) -> str:
    document = {
        "format": 1,
        "version": version_digest,
        "recipe": _native.blake3(encoded(recipe.model_dump(mode="json"))).hex(),
        "atoms": [[part["digest"] for part in atom["parts"]] for atom in atoms],
        "subsets": [{name: subset[name] for name in ("name", "atoms", "digest")} for subset in subsets],
    }
    return format_digest(_native.blake3(encoded(document)))
