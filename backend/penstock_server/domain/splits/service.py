"""Splits: publishing them, reading them, and turning a reference into a loader's plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock.contract.names import DatasetRef, InvalidName, SplitRef
from penstock.contract.records import OWN_ROOT
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.head import encoded
from penstock_server.domain.datasets.service import DatasetPlace, DatasetService, is_slug
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.domain.splits.planner import PreparedSplit
from penstock_server.domain.splits.repository import SplitRepository
from penstock_server.domain.splits.schemas import (
    LoaderPlan,
    PlanDataset,
    PlanPart,
    PlanSplit,
    PlanStore,
    PlanSubset,
    PlanVersion,
    ResolveRequest,
    SplitRead,
    SplitRecipe,
    SubsetRead,
)
from penstock_server.domain.versions.service import VersionService, is_number
from penstock_server.errors import Conflict, FieldProblem, InvalidInput, NotFound
from penstock_server.events import EventBus
from penstock_server.models import Split
from penstock_server.policy import Action, Actor
from penstock_server.store import StoreGateway


class SplitService:
    """What happens to splits; `SplitService(unit, store, bus)`."""

    def __init__(self, unit: UnitOfWork, store: StoreGateway, bus: EventBus) -> None:
        self._unit = unit
        self._store = store
        self._datasets = DatasetService(unit, store, bus)
        self._versions = VersionService(unit, store, bus)
        self._rows = SplitRepository(unit)

    def publish(self, prepared: PreparedSplit, *, actor: Actor) -> SplitRead:
        """Give a prepared split its number; the first split of a dataset becomes its default."""
        place = self._datasets.lock(prepared.dataset_id)
        recipe = prepared.recipe.model_dump(mode="json")
        newest = self._rows.named(prepared.dataset_id, prepared.name, None)
        if newest is not None and newest.version_id == prepared.version_id and newest.recipe == recipe:
            raise Conflict(
                ErrorCode.SPLIT_EXISTS,
                f"{newest.name}@{newest.number} of {place.dataset.slug!r} is this split; use it or change the recipe",
                context={"split": newest.name, "number": newest.number},
            )
        split = Split(
            id=prepared.split_id,
            dataset_id=prepared.dataset_id,
            version_id=prepared.version_id,
            name=prepared.name,
            number=self._rows.next_number(prepared.dataset_id, prepared.name),
            digest=prepared.digest,
            recipe=recipe,
            subsets=prepared.subsets,
            atoms=prepared.atoms,
            report=prepared.report,
            unused=prepared.unused,
            created_at=self._unit.now(),
            created_by=actor.user_id,
        )
        self._rows.add(split)
        self._store.put_own(place.project, place.dataset.id, OWN_ROOT, f"split:{split.id}", encoded(_root(split)))
        self._datasets.mark_split(place.dataset.id, split.id)
        self._datasets.write_head(place)
        return self._read(split, place)

    def page(self, reference: str, request: PageRequest, *, actor: Actor) -> Page[SplitRead]:
        """The splits of a dataset by name, newest number first."""
        place = self._datasets.find(reference, actor=actor, action=Action.SPLIT_READ)
        scope = f"splits:{actor.user_id}:{place.dataset.id}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        if cursor is not None and not _is_key(cursor.key):
            raise InvalidInput(ErrorCode.REQUEST_INVALID, "this cursor is damaged; start again without a cursor")
        rows = self._rows.page(place.dataset.id, limit=request.limit + 1, cursor=cursor)
        page = page_of(rows, [(row.name, row.number) for row in rows], request, scope=scope)
        return Page[SplitRead](
            items=[self._read(row, place) for row in page.items],
            next_cursor=page.next_cursor,
            prev_cursor=page.prev_cursor,
        )

    def get(self, reference: str, split: str, *, actor: Actor) -> SplitRead:
        """One split: `name` is its newest number, `name@k` that one."""
        place = self._datasets.find(reference, actor=actor, action=Action.SPLIT_READ)
        try:
            name = DatasetRef.parse(split)
        except InvalidName:
            raise _no_split(place, split) from None
        return self._read(self._named(place, name.name, name.version), place)

    def resolve(self, body: ResolveRequest, *, actor: Actor, live_url_base: str) -> LoaderPlan:
        """Pin version, split and subset, and say where their members and bytes are."""
        dataset_ref, split_ref = _parsed(body)
        place = self._datasets.find(dataset_ref.name, actor=actor, action=Action.LOADER_RESOLVE)
        split = self._chosen(place, split_ref)
        pinned = self._versions.by_id(place, split.version_id)
        version = pinned.version
        if dataset_ref.version is not None and dataset_ref.version != version.number:
            asked = self._versions.find(dataset_ref.name, dataset_ref.version, actor=actor).version
            raise Conflict(
                ErrorCode.SPLIT_VERSION_MISMATCH,
                f"split {split.name}@{split.number} was made on version {version.number} of {place.dataset.slug!r}, "
                f"not on {asked.number}; ask for '{place.dataset.slug}@{version.number}' or split {asked.number}",
                context={"split": split.name, "version": version.number, "asked": asked.number},
            )
        subset = next((item for item in split.subsets if item["name"] == split_ref.subset), None)
        if subset is None:
            names = ", ".join(item["name"] for item in split.subsets)
            raise NotFound(
                ErrorCode.SPLIT_SUBSET_NOT_FOUND,
                f"split {split.name}@{split.number} of {place.dataset.slug!r} has no subset {split_ref.subset!r}; "
                f"it has {names}",
                context={"split": split.name, "subset": split_ref.subset},
            )
        parts = [part for atom in subset["atoms"] for part in split.atoms[atom]["parts"]]
        return LoaderPlan(
            dataset=PlanDataset(id=place.dataset.id, slug=place.dataset.slug),
            version=PlanVersion(number=version.number, digest=version.digest),
            split=PlanSplit(name=split.name, number=split.number, digest=split.digest),
            subset=PlanSubset(name=subset["name"], count=subset["count"], digest=subset["digest"]),
            dataset_schema=pinned.schema,
            parts=[
                PlanPart(**part, url=f"/api/v1/datasets/{place.dataset.id}/members/{part['object_id']}")
                for part in parts
            ],
            store=PlanStore(**self._store.reader_config(place.project)),
            live_url_base=live_url_base,
        )

    def members(self, reference: str, object_id: UUID, *, actor: Actor) -> tuple[bytes, str]:
        """The bytes of a members part of this dataset, and its digest."""
        place = self._datasets.find(reference, actor=actor, action=Action.LOADER_RESOLVE)
        for atoms in self._rows.atoms_of(place.dataset.id):
            for atom in atoms:
                for part in atom["parts"]:
                    if part["object_id"] == str(object_id):
                        self._unit.close()
                        return self._store.get_own(place.project, place.dataset.id, object_id), part["digest"]
        raise NotFound(ErrorCode.SPLIT_NOT_FOUND, f"no split of {place.dataset.slug!r} has a members part {object_id}")

    def _chosen(self, place: DatasetPlace, reference: SplitRef) -> Split:
        if reference.split is not None:
            return self._named(place, reference.split, reference.split_version)
        default = place.dataset.default_split_id
        split = None if default is None else self._rows.by_id(default)
        if split is None:
            raise NotFound(
                ErrorCode.SPLIT_NOT_FOUND,
                f"dataset {place.dataset.slug!r} has no split yet; make one, then load '{reference.subset}'",
                context={"dataset": place.dataset.slug},
            )
        return split

    def _named(self, place: DatasetPlace, name: str, number: int | None) -> Split:
        split = self._rows.named(place.dataset.id, name, number)
        if split is None:
            raise _no_split(place, name if number is None else f"{name}@{number}")
        return split

    def _read(self, split: Split, place: DatasetPlace) -> SplitRead:
        version = self._versions.by_id(place, split.version_id).version
        return SplitRead(
            id=split.id,
            dataset=place.dataset.slug,
            name=split.name,
            number=split.number,
            version=version.number,
            digest=split.digest,
            recipe=SplitRecipe.model_validate(split.recipe),
            is_default=place.dataset.default_split_id == split.id,
            subsets=[SubsetRead(**{name: item[name] for name in SubsetRead.model_fields}) for item in split.subsets],
            report=split.report,
            unused=split.unused,
            created_at=split.created_at,
        )


def _parsed(body: ResolveRequest) -> tuple[DatasetRef, SplitRef]:
    try:
        dataset = DatasetRef.parse(body.dataset)
    except InvalidName as error:
        raise InvalidInput(
            ErrorCode.REQUEST_INVALID, str(error), errors=[FieldProblem("/dataset", str(error))]
        ) from None
    try:
        return dataset, SplitRef.parse(body.split)
    except InvalidName as error:
        raise InvalidInput(ErrorCode.REQUEST_INVALID, str(error), errors=[FieldProblem("/split", str(error))]) from None


def _is_key(key: Sequence[object]) -> bool:
    return len(key) == 2 and is_slug(key[0]) and is_number(key[1])


def _no_split(place: DatasetPlace, name: str) -> NotFound:
    return NotFound(
        ErrorCode.SPLIT_NOT_FOUND,
        f"dataset {place.dataset.slug!r} has no split {name!r}; `penstock splits list {place.dataset.slug}` lists its "
        "splits",
        context={"dataset": place.dataset.slug, "split": name},
    )


def _root(split: Split) -> dict[str, Any]:
    """What a split is, in full, for a rebuild from the store alone."""
    return {
        "format": 1,
        "kind": "split",
        "id": str(split.id),
        "dataset_id": str(split.dataset_id),
        "version_id": str(split.version_id),
        "name": split.name,
        "number": split.number,
        "digest": split.digest,
        "recipe": split.recipe,
        "subsets": split.subsets,
        "atoms": split.atoms,
        "report": split.report,
        "unused": split.unused,
        "created_at": split.created_at.isoformat(),
    }
