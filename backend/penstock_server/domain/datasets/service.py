"""Datasets: create, read, describe, and the one place where their schema may grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError

from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock.contract.names import InvalidName, require_slug
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.head import write_head
from penstock_server.domain.datasets.repository import DatasetRepository
from penstock_server.domain.datasets.schemas import DatasetCreate, DatasetRead, DatasetSchema, DatasetUpdate
from penstock_server.domain.pages import Page, PageRequest, decode_cursor, page_of
from penstock_server.errors import Conflict, InvalidInput, NotFound, PreconditionFailed, PreconditionRequired
from penstock_server.events import EventBus
from penstock_server.models import Dataset, Project
from penstock_server.policy import Action, Actor, is_allowed, require
from penstock_server.store import StoreGateway

DEFAULT_PROJECT = "default"
MAX_COVER = 4


@dataclass(frozen=True)
class DatasetPlace:
    """A dataset and its project; the rows belong to the caller's unit."""

    dataset: Dataset
    project: Project


class DatasetService:
    """What people do with datasets; `DatasetService(unit, store, bus)`."""

    def __init__(self, unit: UnitOfWork, store: StoreGateway, bus: EventBus) -> None:
        self._unit = unit
        self._store = store
        self._bus = bus
        self._rows = DatasetRepository(unit)

    def create(self, body: DatasetCreate, *, actor: Actor) -> DatasetRead:
        """A new, empty dataset; its schema may be declared now or by the first ingest."""
        project = self._rows.project_by_slug(body.project)
        if project is None:
            raise NotFound(ErrorCode.PROJECT_NOT_FOUND, f"there is no project {body.project!r}")
        require(actor, Action.DATASET_CREATE, project_id=project.id)
        if self._rows.in_project(project.id, body.name) is not None:
            raise _exists(body.name)
        now = self._unit.now()
        schema = body.dataset_schema or DatasetSchema()
        dataset = Dataset(
            id=uuid7(),
            project_id=project.id,
            slug=body.name,
            description=body.description,
            schema=schema.model_dump(mode="json"),
            row_version=1,
            created_at=now,
            updated_at=now,
        )
        try:
            self._rows.add(dataset)
        except IntegrityError:
            raise _exists(body.name) from None
        self._announce(dataset, "created")
        return self.read_of([DatasetPlace(dataset, project)])[0]

    def page(self, request: PageRequest, *, query: str | None, actor: Actor) -> Page[DatasetRead]:
        """Datasets by name; `query` looks in names and descriptions."""
        scope = f"datasets:{actor.user_id}:{query or ''}"
        cursor = decode_cursor(scope, request.cursor) if request.cursor else None
        if cursor is not None and not _is_key(cursor.key):
            raise InvalidInput(ErrorCode.REQUEST_INVALID, "this cursor is damaged; start again without a cursor")
        rows = self._rows.page(query=query, limit=request.limit + 1, cursor=cursor)
        keys = [(row.slug, str(row.id)) for row in rows]
        page = page_of(rows, keys, request, scope=scope)
        projects = self._rows.projects([row.project_id for row in page.items])
        places = [
            DatasetPlace(row, projects[row.project_id])
            for row in page.items
            if is_allowed(actor, Action.DATASET_READ, project_id=row.project_id)
        ]
        return Page[DatasetRead](items=self.read_of(places), next_cursor=page.next_cursor, prev_cursor=page.prev_cursor)

    def get(self, reference: str, *, actor: Actor) -> DatasetRead:
        """One dataset, by slug or id."""
        return self.read_of([self.find(reference, actor=actor)])[0]

    def update(self, reference: str, body: DatasetUpdate, *, if_match: str | None, actor: Actor) -> DatasetRead:
        """Change the description of a dataset that nobody changed meanwhile."""
        place = self.find(reference, actor=actor, action=Action.DATASET_UPDATE)
        dataset = self._locked(place.dataset.id)
        if if_match is None:
            raise PreconditionRequired(
                ErrorCode.REQUEST_PRECONDITION_REQUIRED, "send If-Match with the ETag of the dataset that you have read"
            )
        if if_match.strip() not in ("*", etag(dataset)):
            raise PreconditionFailed(
                ErrorCode.REQUEST_PRECONDITION_FAILED,
                f"dataset {dataset.slug!r} was changed meanwhile; read it again and repeat your change",
            )
        dataset.description = body.description
        self._touch(dataset)
        self._announce(dataset, "updated")
        return self.read_of([DatasetPlace(dataset, place.project)])[0]

    def find(self, reference: str, *, actor: Actor | None, action: Action = Action.DATASET_READ) -> DatasetPlace:
        """The rows of a dataset that the actor may touch; absent and forbidden look the same."""
        candidates = self._candidates(reference)
        projects = self._rows.projects([row.project_id for row in candidates])
        places = [DatasetPlace(row, projects[row.project_id]) for row in candidates]
        places.sort(key=lambda place: (place.project.slug != DEFAULT_PROJECT, place.project.slug))
        for place in places:
            if actor is None or is_allowed(actor, Action.DATASET_READ, project_id=place.project.id):
                if actor is not None:
                    require(actor, action, project_id=place.project.id)
                return place
        raise NotFound(
            ErrorCode.DATASET_NOT_FOUND,
            f"there is no dataset {reference!r}; `penstock datasets` lists those that you may see",
            context={"dataset": reference},
        )

    def set_schema(self, dataset_id: UUID, schema: DatasetSchema) -> DatasetSchema:
        """Declare the schema once, while the dataset has none; setting the same one again does nothing."""
        dataset = self._locked(dataset_id)
        current = schema_of(dataset)
        if current == schema:
            return current
        if current.fields or dataset.latest_version_number is not None:
            raise Conflict(
                ErrorCode.DATASET_SCHEMA_INVALID,
                f"dataset {dataset.slug!r} has a schema already; only its categories can grow",
            )
        if not schema.fields:
            raise InvalidInput(ErrorCode.DATASET_SCHEMA_INVALID, "a schema needs at least one field")
        dataset.schema = schema.model_dump(mode="json")
        self._touch(dataset)
        self._announce(dataset, "updated")
        return schema

    def append_categories(self, dataset_id: UUID, values: Mapping[str, Sequence[str]]) -> DatasetSchema:
        """Append unseen values to category columns, in the order given; returns the schema with its codes."""
        dataset = self._locked(dataset_id)
        document = schema_of(dataset).model_dump(mode="json")
        columns = {column["name"]: column for column in document["columns"]}
        for name, new_values in values.items():
            column = columns.get(name)
            if column is None or column["values"] is None:
                raise InvalidInput(
                    ErrorCode.DATASET_SCHEMA_INVALID, f"dataset {dataset.slug!r} has no category column {name!r}"
                )
            known = set(column["values"])
            for value in new_values:
                if value not in known:
                    known.add(value)
                    column["values"].append(value)
        try:
            schema = DatasetSchema.model_validate(document)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise InvalidInput(ErrorCode.DATASET_SCHEMA_INVALID, f"the categories cannot be added: {reason}") from None
        if schema != schema_of(dataset):
            dataset.schema = schema.model_dump(mode="json")
            self._touch(dataset)
            self._announce(dataset, "updated")
        return schema

    def lock(self, dataset_id: UUID) -> DatasetPlace:
        """The dataset as it is now; nobody else changes it until this unit ends."""
        dataset = self._locked(dataset_id)
        return DatasetPlace(dataset, self._rows.projects([dataset.project_id])[dataset.project_id])

    def mark_published(self, dataset_id: UUID, number: int) -> None:
        """Move `latest` to this version; the caller holds the row."""
        dataset = self._locked(dataset_id)
        dataset.latest_version_number = number
        self._touch(dataset)
        self._announce(dataset, "published")

    def mark_split(self, dataset_id: UUID, split_id: UUID) -> None:
        """A split was made; the first one becomes the default."""
        dataset = self._locked(dataset_id)
        if dataset.default_split_id is None:
            dataset.default_split_id = split_id
        self._touch(dataset)
        self._announce(dataset, "split")

    def write_head(self, place: DatasetPlace) -> None:
        """Tell the store what the catalog is about to say of this dataset; the caller holds the row."""
        versions, splits = self._rows.versions_of(place.dataset.id), self._rows.splits_of(place.dataset.id)
        write_head(self._store, place.project, place.dataset, versions=versions, splits=splits)

    def read_of(self, places: Sequence[DatasetPlace]) -> list[DatasetRead]:
        """Rows as the API shows them, with one query for all versions and one for all splits."""
        versions = self._rows.latest_versions([place.dataset for place in places])
        splits = self._rows.split_names(
            [place.dataset.default_split_id for place in places if place.dataset.default_split_id is not None]
        )
        answers = []
        for place in places:
            dataset, version = place.dataset, versions.get(place.dataset.id)
            base = f"/api/v1/datasets/{dataset.id}/versions/{version.number if version else 0}/samples"
            cover = [name for part in version.parts for name in part["cover"]][:MAX_COVER] if version else []
            answers.append(
                DatasetRead(
                    id=dataset.id,
                    slug=dataset.slug,
                    project=place.project.slug,
                    description=dataset.description,
                    dataset_schema=schema_of(dataset),
                    latest_version=dataset.latest_version_number,
                    default_split=splits.get(dataset.default_split_id) if dataset.default_split_id else None,
                    sample_count=version.sample_count if version else 0,
                    byte_count=version.byte_count if version else 0,
                    created_at=dataset.created_at,
                    updated_at=dataset.updated_at,
                    cover_thumbnails=[f"{base}/{name}/thumbnail" for name in cover],
                )
            )
        return answers

    def _candidates(self, reference: str) -> list[Dataset]:
        try:
            found = self._rows.by_id(UUID(reference))
        except ValueError:
            # Anything else may hold characters that a database refuses.
            return self._rows.by_slug(reference) if is_slug(reference) else []
        return [] if found is None else [found]

    def _locked(self, dataset_id: UUID) -> Dataset:
        dataset = self._rows.locked(dataset_id)
        if dataset is None:
            raise NotFound(ErrorCode.DATASET_NOT_FOUND, f"there is no dataset {dataset_id}")
        return dataset

    def _touch(self, dataset: Dataset) -> None:
        dataset.row_version += 1
        dataset.updated_at = self._unit.now()
        self._rows.flush()

    def _announce(self, dataset: Dataset, change: str) -> None:
        payload = {"id": str(dataset.id), "slug": dataset.slug, "change": change}
        project_id = dataset.project_id
        self._unit.after_commit(lambda: self._bus.publish("datasets", "dataset", project_id, payload))


def schema_of(dataset: Dataset) -> DatasetSchema:
    return DatasetSchema.model_validate(dataset.schema or {})


def etag(dataset: Dataset) -> str:
    return f'"{dataset.row_version}"'


def _exists(slug: str) -> Conflict:
    return Conflict(
        ErrorCode.DATASET_EXISTS, f"there is a dataset {slug!r} already; choose another name", context={"dataset": slug}
    )


def _is_key(key: Sequence[object]) -> bool:
    try:
        return len(key) == 2 and is_slug(key[0]) and UUID(str(key[1])) is not None
    except ValueError:
        return False


def is_slug(text: object) -> bool:
    """Whether a text may name a dataset or a split; false for all that a database could stumble over."""
    try:
        return isinstance(text, str) and bool(require_slug(text, what="dataset"))
    except InvalidName:
        return False
