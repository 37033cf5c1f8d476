"""Versions: publishing them, reading them, and opening their manifests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.contract.codes import ErrorCode
from penstock.contract.ids import own_object_id
from penstock.contract.records import OWN_ROOT
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.head import encoded
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.domain.datasets.service import DatasetPlace, DatasetService
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.domain.versions.publisher import PreparedVersion, parts_of, root_document
from penstock_server.domain.versions.repository import VersionRepository
from penstock_server.domain.versions.schemas import VersionRead
from penstock_server.errors import InvalidInput, NotFound, PreconditionFailed
from penstock_server.events import EventBus
from penstock_server.manifests.copies import ManifestRef
from penstock_server.manifests.parts import PartStore
from penstock_server.models import Version
from penstock_server.policy import Action, Actor
from penstock_server.store import StoreGateway

LATEST = "latest"


class StaleParent(PreconditionFailed):
    """Another version was published since this one was prepared: prepare it again on that one."""


@dataclass(frozen=True)
class VersionPlace:
    """A published version with its dataset and project."""

    place: DatasetPlace
    version: Version
    schema: DatasetSchema

    @property
    def manifest(self) -> ManifestRef:
        return ManifestRef(self.version.id, self.schema, parts_of(self.version))


class VersionService:
    """What happens to versions; `VersionService(unit, store, bus)`."""

    def __init__(self, unit: UnitOfWork, store: StoreGateway, bus: EventBus) -> None:
        self._unit = unit
        self._store = store
        self._datasets = DatasetService(unit, store, bus)
        self._rows = VersionRepository(unit)

    def publish(
        self,
        prepared: PreparedVersion,
        *,
        fence_check: Callable[[UnitOfWork], None],
        quarantined_count: int = 0,
    ) -> VersionRead:
        """Give the version its number, write root and head, make it visible; the parent itself when nothing changed.

        Raises StaleParent when another version was published since `prepare`.
        """
        fence_check(self._unit)
        place = self._datasets.lock(prepared.dataset_id)
        dataset = place.dataset
        if dataset.latest_version_number != prepared.parent_number:
            raise StaleParent(
                ErrorCode.REQUEST_PRECONDITION_FAILED,
                f"version {dataset.latest_version_number} of {dataset.slug!r} was published meanwhile; try again on it",
            )
        if prepared.is_same_as_parent and prepared.parent_number is not None:
            return self._read(self._published(place, prepared.parent_number), dataset.slug)
        now = self._unit.now()
        version = Version(
            id=prepared.version_id,
            dataset_id=prepared.dataset_id,
            number=self._rows.next_number(prepared.dataset_id),
            state="reserved",
            digest=prepared.digest,
            sample_count=prepared.sample_count,
            byte_count=prepared.byte_count,
            parent_number=prepared.parent_number,
            schema=prepared.schema.model_dump(mode="json"),
            parts=[part.to_json() for part in prepared.parts],
            root_object_id=own_object_id(prepared.dataset_id, OWN_ROOT, str(prepared.version_id)),
            job_id=prepared.job_id,
            quarantined_count=quarantined_count,
            created_at=now,
        )
        self._rows.add(version)
        root = encoded(root_document(version, dataset_slug=dataset.slug))
        self._store.put_own(place.project, dataset.id, OWN_ROOT, str(version.id), root)
        version.state, version.published_at = "published", now
        self._datasets.mark_published(dataset.id, version.number)
        # A head that names this version while the commit fails names a whole, verified one: harmless.
        self._datasets.write_head(place)
        return self._read(version, dataset.slug)

    def page(self, reference: str, request: PageRequest, *, actor: Actor) -> Page[VersionRead]:
        """The versions of a dataset, newest first."""
        place = self._datasets.find(reference, actor=actor, action=Action.VERSION_READ)
        scope = f"versions:{actor.user_id}:{place.dataset.id}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        if cursor is not None and not (len(cursor.key) == 1 and is_number(cursor.key[0])):
            raise InvalidInput(ErrorCode.REQUEST_INVALID, "this cursor is damaged; start again without a cursor")
        rows = self._rows.page(place.dataset.id, limit=request.limit + 1, cursor=cursor)
        page = page_of(rows, [(row.number,) for row in rows], request, scope=scope)
        return Page[VersionRead](
            items=[self._read(row, place.dataset.slug) for row in page.items],
            next_cursor=page.next_cursor,
            prev_cursor=page.prev_cursor,
        )

    def get(self, reference: str, number: str, *, actor: Actor) -> VersionRead:
        """One version, by number or `latest`."""
        found = self.find(reference, number, actor=actor, action=Action.VERSION_READ)
        return self._read(found.version, found.place.dataset.slug)

    def find(
        self, reference: str, number: str | int | None, *, actor: Actor | None, action: Action = Action.VERSION_READ
    ) -> VersionPlace:
        """The rows of a published version; None and `latest` mean the newest one."""
        place = self._datasets.find(reference, actor=actor, action=action)
        version = self._published(place, _number(number, place.dataset.latest_version_number, place.dataset.slug))
        return VersionPlace(place, version, DatasetSchema.model_validate(version.schema))

    def by_id(self, place: DatasetPlace, version_id: UUID) -> VersionPlace:
        """The version that a split belongs to."""
        version = self._rows.by_id(version_id)
        if version is None or version.dataset_id != place.dataset.id:
            raise NotFound(ErrorCode.VERSION_NOT_FOUND, f"dataset {place.dataset.slug!r} has lost a version")
        return VersionPlace(place, version, DatasetSchema.model_validate(version.schema))

    def parts(self, place: VersionPlace) -> PartStore:
        return PartStore(self._store, place.place.project, dataset_id=place.place.dataset.id)

    def _published(self, place: DatasetPlace, number: int) -> Version:
        version = self._rows.published(place.dataset.id, number)
        if version is None:
            raise NotFound(
                ErrorCode.VERSION_NOT_FOUND,
                f"dataset {place.dataset.slug!r} has no version {number}; the latest is "
                f"{place.dataset.latest_version_number}",
                context={"dataset": place.dataset.slug, "version": number},
            )
        return version

    def _read(self, version: Version, slug: str) -> VersionRead:
        return VersionRead(
            id=version.id,
            dataset=slug,
            number=version.number,
            digest=version.digest,
            sample_count=version.sample_count,
            byte_count=version.byte_count,
            parent=version.parent_number,
            created_at=version.created_at,
            job_id=version.job_id,
            dataset_schema=DatasetSchema.model_validate(version.schema),
            quarantined_count=version.quarantined_count,
        )


def is_number(value: object) -> bool:
    """Whether a value may be the number of a version or split: what a database integer holds."""
    return type(value) is int and 0 <= value < 1 << 31


def _number(asked: str | int | None, latest: int | None, slug: str) -> int:
    if latest is None:
        raise NotFound(
            ErrorCode.DATASET_NO_VERSION, f"dataset {slug!r} has no version yet; ingest a folder first",
            context={"dataset": slug},
        )  # fmt: skip
    if asked is None or asked == LATEST:
        return latest
    # More digits than a database integer has would be an error of the driver.
    if isinstance(asked, str) and not (asked.isascii() and asked.isdigit() and len(asked) < 10):
        raise NotFound(ErrorCode.VERSION_NOT_FOUND, f"{asked!r} is no version; use a number or 'latest'")
    return int(asked)
