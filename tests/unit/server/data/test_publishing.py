"""Publishing: digests over logical rows, appending, replacing, and doing nothing when nothing changed."""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from unit.server.data.builders import (
    SCHEMA,
    Parts,
    create_dataset,
    items,
    prepare,
    project_of,
    publish,
    staged,
)

from penstock.contract.codes import ErrorCode
from penstock.contract.ids import own_object_id
from penstock_server.db import UnitOfWork
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.domain.datasets.service import DatasetService
from penstock_server.domain.versions import appending
from penstock_server.domain.versions.service import StaleParent, VersionService
from penstock_server.errors import ServerError
from penstock_server.manifests.copies import copy_path
from penstock_server.models import Dataset, Version


def _versions(parts: Parts) -> list[Version]:
    with parts.catalog.unit(is_read_only=True) as unit:
        return unit.session.query(Version).order_by(Version.number).all()


def test_publish_first_version_has_number_counts_and_digest(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(30)
    version = publish(parts, dataset_id, [staged(dataset_id, rows[:17]), staged(dataset_id, rows[17:])])
    assert (version.number, version.sample_count, version.parent) == (1, 30, None)
    assert version.byte_count == sum(len(item.image) + len(item.note) for item in rows)
    assert version.digest.startswith("b3:")
    assert copy_path(parts.settings.data_folder, version.id).exists()


def test_digest_does_not_depend_on_parts_or_staging(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset_id = create_dataset(parts)
    rows = items(50)
    whole = prepare(parts, dataset_id, [staged(dataset_id, rows)])
    monkeypatch.setattr(appending, "MAX_PART_ROWS", 7)
    cut = prepare(parts, dataset_id, [staged(dataset_id, rows[start : start + 4]) for start in range(0, 50, 4)])
    assert len(whole.parts) == 1
    assert [part.rows for part in cut.parts] == [7] * 7 + [1]
    assert cut.digest == whole.digest
    assert cut.byte_count == whole.byte_count


def test_digest_covers_metadata_and_content_but_not_thumbnails(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(8)
    table = staged(dataset_id, rows)
    base = prepare(parts, dataset_id, [table]).digest
    relabelled = [replace(rows[0], tumor=0), *rows[1:]]
    assert prepare(parts, dataset_id, [staged(dataset_id, relabelled)]).digest != base
    repainted = [replace(rows[0], image=b"other"), *rows[1:]]
    assert prepare(parts, dataset_id, [staged(dataset_id, repainted)]).digest != base
    position = table.column_names.index("thumbnail")
    bare = table.set_column(position, "thumbnail", [[None] * 8])
    assert prepare(parts, dataset_id, [bare]).digest == base


def test_digest_is_over_category_text_not_codes(parts: Parts) -> None:
    document = SCHEMA.model_dump(mode="json")
    document["columns"][0]["values"] = ["yes", "no"]
    swapped = DatasetSchema.model_validate(document)
    first = create_dataset(parts, "first")
    rows = items(6)
    expected = prepare(parts, first, [staged(first, rows)]).digest
    with parts.catalog.unit() as unit:
        unit.session.get_one(Dataset, first).schema = swapped.model_dump(mode="json")
    turned = [replace(item, tumor=1 - (item.tumor or 0)) for item in rows]
    assert prepare(parts, first, [staged(first, turned, swapped)]).digest == expected


def test_digest_golden_vector(parts: Parts) -> None:
    """The published digest of six samples: a change here breaks every digest that users have written down."""
    fixed = UUID("01890000-0000-7000-8000-000000000001")
    with parts.catalog.unit() as unit:
        now = unit.now()
        unit.session.add(
            Dataset(
                id=fixed, project_id=project_of(parts).id, slug="golden", description="", row_version=1,
                schema=SCHEMA.model_dump(mode="json"), created_at=now, updated_at=now,
            )
        )  # fmt: skip
    prepared = prepare(parts, fixed, [staged(fixed, items(6))])
    assert prepared.digest == "b3:e0479e39466e767cb32a14d42675adefc17c677d2711d3899f26dcea2c8c48b2"


def test_publish_same_content_again_returns_parent(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(20)
    first = publish(parts, dataset_id, [staged(dataset_id, rows)])
    again = publish(parts, dataset_id, [staged(dataset_id, rows)], parent=1)
    assert again == first
    assert len(_versions(parts)) == 1


def test_publish_subset_of_parent_changes_nothing(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(20)
    first = publish(parts, dataset_id, [staged(dataset_id, rows)])
    assert publish(parts, dataset_id, [staged(dataset_id, rows[5:9])], parent=1).id == first.id


def test_append_shares_parts_and_digest_equals_publishing_at_once(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(40)
    publish(parts, dataset_id, [staged(dataset_id, rows[:25])])
    second = publish(parts, dataset_id, [staged(dataset_id, rows[20:])], parent=1)
    assert (second.number, second.parent, second.sample_count) == (2, 1, 40)
    old, new = _versions(parts)
    assert new.parts[0] == old.parts[0]
    assert second.digest == prepare(parts, dataset_id, [staged(dataset_id, rows)]).digest


def test_replacing_rows_marks_old_ones_removed_and_keeps_files(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(12)
    publish(parts, dataset_id, [staged(dataset_id, rows)])
    changed = [replace(rows[3], image=b"new"), replace(rows[5], tumor=1)]
    second = publish(parts, dataset_id, [staged(dataset_id, changed)], parent=1)
    assert (second.number, second.sample_count) == (2, 12)
    old, new = _versions(parts)
    assert new.parts[0]["families"] == old.parts[0]["families"]
    assert new.parts[0]["deleted_count"] == 2
    assert old.parts[0]["deleted_count"] == 0
    expected = [*rows]
    expected[3], expected[5] = changed
    assert second.digest == prepare(parts, dataset_id, [staged(dataset_id, expected)]).digest
    third = publish(parts, dataset_id, [staged(dataset_id, rows)], parent=2)
    assert third.digest == old.digest
    assert third.number == 3


def test_publish_on_a_stale_parent_is_refused(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    rows = items(10)
    late = prepare(parts, dataset_id, [staged(dataset_id, rows[:5])])
    publish(parts, dataset_id, [staged(dataset_id, rows[5:])])
    with pytest.raises(StaleParent), parts.catalog.unit() as unit:
        VersionService(unit, parts.store, parts.bus).publish(late, fence_check=lambda _: None)
    assert [version.number for version in _versions(parts)] == [1]


def test_publish_with_a_lost_lease_leaves_nothing(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    prepared = prepare(parts, dataset_id, [staged(dataset_id, items(4))])

    def lost(_unit: UnitOfWork) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), parts.catalog.unit() as unit:
        VersionService(unit, parts.store, parts.bus).publish(prepared, fence_check=lost)
    assert _versions(parts) == []


def test_root_and_head_objects_name_the_version(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    version = publish(parts, dataset_id, [staged(dataset_id, items(4))])
    project = project_of(parts)
    root = json.loads(parts.store.get_own(project, dataset_id, own_object_id(dataset_id, "root", str(version.id))))
    head = json.loads(parts.store.get_own(project, dataset_id, own_object_id(dataset_id, "head", "head")))
    assert root["digest"] == version.digest
    assert root["parts"] == _versions(parts)[0].parts
    assert head["versions"] == [{"id": str(version.id), "number": 1}]
    assert head["latest_version"] == 1
    assert head["schema"] == SCHEMA.model_dump(mode="json")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"key": "00001.png", "source": "slide00"}, ErrorCode.INGEST_SCHEMA_MISMATCH),
        ({"tumor": 7}, ErrorCode.INGEST_SCHEMA_MISMATCH),
        ({"tags": [0, 9]}, ErrorCode.INGEST_SCHEMA_MISMATCH),
    ],
)
def test_wrong_rows_are_refused(parts: Parts, change: dict[str, object], code: ErrorCode) -> None:
    dataset_id = create_dataset(parts)
    rows = items(24)
    rows[0] = replace(rows[0], **change)  # type: ignore[arg-type]  # fields of Item
    with pytest.raises(ServerError) as caught:
        prepare(parts, dataset_id, [staged(dataset_id, rows)])
    assert caught.value.code == code


def test_nothing_to_publish_is_refused(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    with pytest.raises(ServerError) as caught:
        prepare(parts, dataset_id, [])
    assert caught.value.code == ErrorCode.INGEST_FOLDER_EMPTY


def test_schema_is_set_once_and_categories_only_grow(parts: Parts) -> None:
    dataset_id = create_dataset(parts, schema=None)
    with parts.catalog.unit() as unit:
        service = DatasetService(unit, parts.store, parts.bus)
        service.set_schema(dataset_id, SCHEMA)
        service.set_schema(dataset_id, SCHEMA)
        grown = service.append_categories(dataset_id, {"tumor": ["maybe", "no", "maybe"]})
    assert grown.columns[0].values == ["no", "yes", "maybe"]
    with parts.catalog.unit() as unit:
        service = DatasetService(unit, parts.store, parts.bus)
        with pytest.raises(ServerError) as caught:
            service.set_schema(dataset_id, SCHEMA)
        assert caught.value.code == ErrorCode.DATASET_SCHEMA_INVALID
        with pytest.raises(ServerError):
            service.append_categories(dataset_id, {"age": ["x"]})


def test_cover_names_samples_of_the_version(parts: Parts) -> None:
    dataset_id = create_dataset(parts)
    table = staged(dataset_id, items(9))
    publish(parts, dataset_id, [table])
    ids = {UUID(bytes=value) for value in table["sample_id"].to_pylist()}
    cover = [UUID(name) for name in _versions(parts)[0].parts[0]["cover"]]
    assert len(cover) == 4
    assert set(cover) <= ids
