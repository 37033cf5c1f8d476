"""Splits: members as the contract has them, the leakage proof, refusals, and plans for loaders."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from unit.server.data.builders import (
    Item,
    Parts,
    actor_of,
    create_dataset,
    items,
    project_of,
    publish,
    staged,
)

from penstock import _native
from penstock.contract import members as layout
from penstock.contract.codes import ErrorCode
from penstock.contract.ids import own_object_id
from penstock.contract.records import format_digest, parse_digest
from penstock_server.domain.pages import PageRequest
from penstock_server.domain.splits.planner import SplitPlanner
from penstock_server.domain.splits.schemas import LoaderPlan, ResolveRequest, SplitCreate, SplitRead
from penstock_server.domain.splits.service import SplitService
from penstock_server.errors import ServerError
from penstock_server.manifests.copies import QueryCopies

THREE = [{"name": "train", "ratio": 0.7}, {"name": "val", "ratio": 0.15}, {"name": "test", "ratio": 0.15}]


class Splitter:
    """A dataset with one version and the calls of the API on it."""

    def __init__(self, parts: Parts, rows: list[Item]) -> None:
        self.parts = parts
        self.rows = rows
        self.dataset_id = create_dataset(parts)
        publish(parts, self.dataset_id, [staged(self.dataset_id, rows)])
        self.actor = actor_of(parts)
        self.copies = QueryCopies(parts.settings.data_folder)

    def create(self, name: str = "by-patient", *, version: int | None = None, **recipe: Any) -> SplitRead:
        body = SplitCreate.model_validate({"name": name, "version": version, "recipe": {"subsets": THREE, **recipe}})
        prepared = SplitPlanner(self.parts, self.copies).prepare("demo", body, actor=self.actor)
        with self.parts.catalog.unit() as unit:
            return SplitService(unit, self.parts.store, self.parts.bus).publish(prepared, actor=self.actor)

    def resolve(self, split: str, dataset: str = "demo") -> LoaderPlan:
        with self.parts.catalog.unit(is_read_only=True) as unit:
            return SplitService(unit, self.parts.store, self.parts.bus).resolve(
                ResolveRequest(dataset=dataset, split=split), actor=self.actor, live_url_base="http://127.0.0.1/live"
            )

    def members(self, plan: LoaderPlan) -> pa.Table:
        tables = []
        for part in plan.parts:
            with self.parts.catalog.unit(is_read_only=True) as unit:
                service = SplitService(unit, self.parts.store, self.parts.bus)
                data, digest = service.members("demo", part.object_id, actor=self.actor)
            assert (digest, len(data)) == (part.digest, part.bytes)
            reader = pa.ipc.open_file(pa.py_buffer(data))
            assert reader.num_record_batches == 1
            table = pa.Table.from_batches([reader.get_batch(0)])
            assert format_digest(_native.blake3(_native.row_hashes(table))) == part.digest
            tables.append(table)
        return pa.concat_tables(tables)


@pytest.fixture
def splitter(parts: Parts) -> Splitter:
    return Splitter(parts, items(120))


def _ids(table: pa.Table) -> set[bytes]:
    ids: list[Any] = table["id"].to_pylist()
    return set(ids)


def test_grouped_split_separates_groups_and_covers_all(splitter: Splitter) -> None:
    split = splitter.create(group_by="patient", stratify_by=["tumor"], seed=7)
    assert (split.number, split.version, split.is_default, split.unused) == (1, 1, True, 0)
    assert [subset.count for subset in split.subsets] == [
        splitter.resolve(name).subset.count for name in ("train", "val", "test")
    ]
    assert sum(subset.count for subset in split.subsets) == 120
    assert [subset.groups for subset in split.subsets] == [8, 2, 2]
    assert (split.report["shared_groups"], split.report["shared_content"]) == (0, 0)
    seen: set[bytes] = set()
    groups: set[Any] = set()
    for subset in split.subsets:
        table = splitter.members(splitter.resolve(subset.name))
        assert table.num_rows == subset.count
        assert not seen & _ids(table)
        here: set[Any] = set(table["column:patient"].to_pylist())
        assert not groups & here
        seen |= _ids(table)
        groups |= here
        labels = table["column:tumor"].to_pylist()
        assert subset.classes == {"no": labels.count(0), "yes": labels.count(1)}
    assert len(seen) == 120


def test_members_have_the_contract_columns_and_values(splitter: Splitter) -> None:
    splitter.create("all", subsets=[{"name": "everything", "ratio": 1}])
    plan = splitter.resolve("everything")
    table = splitter.members(plan)
    header = layout.MembersHeader.from_json(table.schema.metadata[layout.METADATA_KEY])
    assert [field.name for field in header.fields] == ["image", "note"]
    assert [(column.name, str(column.kind)) for column in header.columns] == [
        ("tumor", "category"), ("patient", "category"), ("tags", "multi_category"), ("age", "float"),
        ("score", "float"), ("checked", "bool"),
    ]  # fmt: skip
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types["id"] == types["object:image"] == "fixed_size_binary[16]"
    assert (types["row"], types["size:image"], types["xxh3:image"]) == ("int64", "uint64", "uint64")
    assert (types["column:tumor"], types["column:checked"]) == ("int32", "int8")
    assert types["column:tags"] == "fixed_size_binary[1]"
    assert sum(column.null_count for column in table.columns) == 0
    assert table["row"].to_pylist() == list(range(120))
    rows = staged(splitter.dataset_id, splitter.rows)
    for name in ("object:image", "size:image", "xxh3:image", "object:note"):
        assert table[name].to_pylist() == rows[name].to_pylist()
    assert table["id"].to_pylist() == rows["sample_id"].to_pylist()
    ages = np.array([np.nan if item.age is None else item.age for item in splitter.rows])
    np.testing.assert_array_equal(table["column:age"].to_numpy(), ages)
    expected = [bytes([sum(1 << code for code in item.tags or [])]) for item in splitter.rows]
    assert table["column:tags"].to_pylist() == expected
    checked = [-1 if item.checked is None else int(item.checked) for item in splitter.rows]
    assert table["column:checked"].to_pylist() == checked
    digests = b"".join(parse_digest(part.digest) for part in plan.parts)
    assert plan.subset.digest == format_digest(_native.blake3(digests))


def test_same_recipe_gives_same_digest_on_another_server(parts: Parts, splitter: Splitter) -> None:
    one = splitter.create(group_by="patient", seed=3)
    two = splitter.create("other-name", group_by="patient", seed=3)
    assert one.digest == two.digest
    assert splitter.create("third", group_by="patient", seed=4).digest != one.digest


def test_split_survives_appended_parts_in_another_order(parts: Parts) -> None:
    """Rows that came in two ingests split like rows that came in one: order of arrival means nothing."""
    rows = items(120)
    splitter = Splitter(parts, rows[60:])
    publish(parts, splitter.dataset_id, [staged(splitter.dataset_id, rows[:60])], parent=1)
    appended = splitter.create("appended", version=2, group_by="patient", stratify_by=["tumor"], seed=1)
    keys = {name: splitter.members(splitter.resolve(f"appended/{name}")) for name in ("train", "val", "test")}
    publish_all = create_dataset(parts, "whole")
    publish(parts, publish_all, [staged(publish_all, rows)])
    body = SplitCreate.model_validate(
        {"name": "x", "recipe": {"subsets": THREE, "group_by": "patient", "stratify_by": ["tumor"], "seed": 1}}
    )
    whole = SplitPlanner(parts, splitter.copies).prepare("whole", body, actor=splitter.actor)
    assert [subset["count"] for subset in whole.subsets] == [subset.count for subset in appended.subsets]
    assert [subset["classes"] for subset in whole.subsets] == [subset.classes for subset in appended.subsets]
    sizes = staged(splitter.dataset_id, rows)["sample_id"].to_pylist()
    train = [sizes.index(sample_id) for sample_id in keys["train"]["id"].to_pylist()]
    assert train == sorted(train)


def test_stratified_split_without_groups_is_proportional(splitter: Splitter) -> None:
    split = splitter.create(stratify_by=["tumor"], seed=2)
    assert [subset.count for subset in split.subsets] == [84, 18, 18]
    for subset in split.subsets:
        assert abs(subset.classes["yes"] / subset.count - 0.25) < 0.06
        assert subset.groups is None
    assert any("independent" in warning for warning in split.report["warnings"])


def test_filter_counts_and_unused(splitter: Splitter) -> None:
    split = splitter.create(subsets=[{"name": "few", "count": 10}], filter="tumor = 'yes'")
    assert split.subsets[0].count == 10
    assert split.subsets[0].classes == {"yes": 10}
    assert split.unused == 20
    assert split.report["unused"] == {"not_asked": 20}


def test_samples_without_a_group_are_left_out_with_the_reason(parts: Parts) -> None:
    rows = [replace(item, patient=None) if index < 5 else item for index, item in enumerate(items(60))]
    split = Splitter(parts, rows).create(group_by="patient")
    assert split.unused == 5
    assert split.report["unused"]["no_group"] == 5


def test_equal_files_in_two_subsets_are_reported(parts: Parts) -> None:
    rows = [replace(item, image=b"blank") for item in items(12)]
    split = Splitter(parts, rows).create(subsets=[{"name": "a", "ratio": 0.5}, {"name": "b", "ratio": 0.5}])
    assert split.report["shared_content"] == 1
    assert any("equal files" in warning for warning in split.report["warnings"])


def test_infeasible_recipe_says_reason_and_nearest(splitter: Splitter) -> None:
    with pytest.raises(ServerError) as caught:
        splitter.create(group_by="patient", filter="patient IN ('p00', 'p01')")
    assert caught.value.code == ErrorCode.SPLIT_INFEASIBLE
    assert "only 2" in caught.value.detail
    assert "use at most 2 subsets" in str(caught.value.context["nearest"])


@pytest.mark.parametrize(
    ("recipe", "code"),
    [
        ({"group_by": "nope"}, ErrorCode.SPLIT_RECIPE_INVALID),
        ({"group_by": "score"}, ErrorCode.SPLIT_RECIPE_INVALID),
        ({"stratify_by": ["remark"]}, ErrorCode.SPLIT_RECIPE_INVALID),
        ({"filter": "nope = 1"}, ErrorCode.FILTER_INVALID),
        ({"filter": "age > 1000"}, ErrorCode.SPLIT_INFEASIBLE),
    ],
)
def test_wrong_recipes_are_refused(splitter: Splitter, recipe: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(ServerError) as caught:
        splitter.create(**recipe)
    assert caught.value.code == code


def test_same_split_twice_is_refused_and_another_recipe_is_number_two(splitter: Splitter) -> None:
    splitter.create(seed=1)
    with pytest.raises(ServerError) as caught:
        splitter.create(seed=1)
    assert caught.value.code == ErrorCode.SPLIT_EXISTS
    second = splitter.create(seed=2)
    assert (second.number, second.is_default) == (2, False)
    assert splitter.resolve("by-patient/train").split.number == 2
    assert splitter.resolve("by-patient@1/train").split.number == 1
    assert splitter.resolve("train").split.number == 1
    with splitter.parts.catalog.unit(is_read_only=True) as unit:
        service = SplitService(unit, splitter.parts.store, splitter.parts.bus)
        first = service.page("demo", PageRequest(limit=1), actor=splitter.actor)
        rest = service.page("demo", PageRequest(limit=1, cursor=first.next_cursor), actor=splitter.actor)
        back = service.page("demo", PageRequest(limit=1, cursor=rest.prev_cursor), actor=splitter.actor)
    assert [page.items[0].number for page in (first, rest, back)] == [2, 1, 2]


def test_resolve_pins_the_version_of_the_split_and_refuses_another(splitter: Splitter) -> None:
    splitter.create()
    publish(
        splitter.parts,
        splitter.dataset_id,
        [staged(splitter.dataset_id, [replace(splitter.rows[0], age=99)])],
        parent=1,
    )
    plan = splitter.resolve("train")
    assert plan.version.number == 1
    assert plan.store.reach == "local_only"
    assert plan.store.config is not None
    assert plan.store.config["is_read_only"] is True
    assert splitter.resolve("train", dataset="demo@1").version == plan.version
    cases = [
        ("demo@2", "train", ErrorCode.SPLIT_VERSION_MISMATCH, "was made on version 1 of 'demo', not on 2; ask for"),
        ("demo@9", "train", ErrorCode.VERSION_NOT_FOUND, "'demo' has no version 9; the latest is 2"),
        ("demo", "nope", ErrorCode.SPLIT_SUBSET_NOT_FOUND, "has no subset 'nope'; it has train"),
        ("demo", "nope/train", ErrorCode.SPLIT_NOT_FOUND, "has no split 'nope'; `penstock splits list demo` lists"),
        ("nope", "train", ErrorCode.DATASET_NOT_FOUND, "there is no dataset 'nope'; `penstock datasets` lists"),
        ("demo", "a/b/c", ErrorCode.REQUEST_INVALID, "'a/b' is no valid split name: use"),
        ("De mo", "train", ErrorCode.REQUEST_INVALID, "'De mo' is no valid dataset name: use"),
    ]
    for dataset, split, code, words in cases:
        with pytest.raises(ServerError) as caught:
            splitter.resolve(split, dataset=dataset)
        assert caught.value.code == code
        assert words in caught.value.detail


def test_resolve_without_any_split_says_so(splitter: Splitter) -> None:
    with pytest.raises(ServerError) as caught:
        splitter.resolve("train")
    assert caught.value.code == ErrorCode.SPLIT_NOT_FOUND


def test_members_of_nobody_are_not_served(splitter: Splitter) -> None:
    splitter.create()
    head = own_object_id(splitter.dataset_id, "head", "head")
    for object_id in (head, UUID(int=5)):
        with splitter.parts.catalog.unit(is_read_only=True) as unit, pytest.raises(ServerError) as caught:
            SplitService(unit, splitter.parts.store, splitter.parts.bus).members(
                "demo", object_id, actor=splitter.actor
            )
        assert caught.value.code == ErrorCode.SPLIT_NOT_FOUND


def test_head_and_root_hold_the_split(splitter: Splitter) -> None:
    split = splitter.create()
    project = project_of(splitter.parts)
    head = json.loads(
        splitter.parts.store.get_own(project, splitter.dataset_id, own_object_id(splitter.dataset_id, "head", "head"))
    )
    assert head["splits"] == [{"id": str(split.id), "name": "by-patient", "number": 1}]
    assert head["default_split"] == str(split.id)
    root_id = own_object_id(splitter.dataset_id, "root", f"split:{split.id}")
    root = json.loads(splitter.parts.store.get_own(project, splitter.dataset_id, root_id))
    assert root["digest"] == split.digest
    assert [atom["rows"] for atom in root["atoms"]] == [84, 18, 18]
