"""The head object of a dataset: from it and the roots it names, the catalog's rows can be made again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.contract.records import OWN_HEAD
from penstock_server.models import Dataset, Project, Split, Version
from penstock_server.store import StoreGateway

HEAD_NAME = "head"


def write_head(
    store: StoreGateway, project: Project, dataset: Dataset, *, versions: Sequence[Version], splits: Sequence[Split]
) -> None:
    """Written inside the transaction that changes what it says, while the dataset's row is locked."""
    store.put_own(project, dataset.id, OWN_HEAD, HEAD_NAME, encoded(_document(project, dataset, versions, splits)))


def _document(
    project: Project, dataset: Dataset, versions: Sequence[Version], splits: Sequence[Split]
) -> dict[str, Any]:
    default = dataset.default_split_id
    return {
        "format": 1,
        "kind": "dataset",
        "id": str(dataset.id),
        "slug": dataset.slug,
        "project": {"id": str(project.id), "slug": project.slug},
        "description": dataset.description,
        "schema": dataset.schema,
        "latest_version": dataset.latest_version_number,
        "default_split": None if default is None else str(default),
        "is_deleted": dataset.deleted_at is not None,
        "redacted": [],
        "versions": [{"id": str(item.id), "number": item.number} for item in versions],
        "splits": [{"id": str(item.id), "name": item.name, "number": item.number} for item in splits],
    }


def encoded(document: dict[str, Any]) -> bytes:
    """Canonical JSON: the same document is the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
