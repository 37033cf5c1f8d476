import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.contract.codes import ErrorCode
from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema, FieldSchema
from penstock_server.domain.jobs.schemas import IngestCreate
from penstock_server.errors import InvalidInput
from penstock_workers.readers import Listing, read_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "slides"
    folder.mkdir()
    return folder


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"bytes of " + name.encode())


def listed(folder: Path, declared: DatasetSchema | None = None, **options: Any) -> Listing:
    source = {"path": str(folder), "name": options.pop("name", None)}
    return read_source(folder, IngestCreate.model_validate({"source": source, **options}), declared)


def column(listing: Listing, name: str) -> ColumnSchema:
    found = listing.schema.column(name)
    assert found is not None
    return found


class TestFolders:
    def test_each_top_folder_is_a_class(self, folder: Path) -> None:
        put(folder, "dog/b.png", "cat/deep/c.png", "cat/a.png")
        listing = listed(folder, label="animal")
        assert [(entry.source, entry.key, entry.values) for entry in listing.entries] == [
            ("slides/cat", "a.png", {"animal": "cat"}),
            ("slides/cat/deep", "c.png", {"animal": "cat"}),
            ("slides/dog", "b.png", {"animal": "dog"}),
        ]
        assert listing.schema.fields == [FieldSchema(name="image", kind="image")]
        assert column(listing, "animal").role == "label"
        assert listing.categories() == {"animal": ["cat", "dog"]}

    def test_source_is_a_name_and_never_a_path(self, folder: Path) -> None:
        put(folder, "cat/a.png")
        moved = folder.parent / "elsewhere" / "slides"
        moved.parent.mkdir()
        first = listed(folder).entries
        folder.rename(moved)
        assert listed(moved).entries == first
        assert listed(moved, name="ward 7").entries[0].source == "ward 7/cat"

    def test_files_without_a_class_folder_have_no_label(self, folder: Path) -> None:
        put(folder, "a.png", "b.png")
        listing = listed(folder)
        assert listing.schema.columns == []
        assert [entry.values for entry in listing.entries] == [{}, {}]

    def test_hidden_and_system_files_are_skipped(self, folder: Path) -> None:
        put(folder, "cat/a.png", "cat/.a.png", ".git/x", "cat/Thumbs.db")
        listing = listed(folder)
        assert [entry.key for entry in listing.entries] == ["a.png"]
        assert listing.problems == []

    def test_links_out_of_the_folder_and_odd_files_are_put_aside(self, folder: Path) -> None:
        put(folder, "cat/a.png")
        put(folder.parent, "secret.png")
        (folder / "cat" / "in.png").symlink_to(folder / "cat" / "a.png")
        (folder / "cat" / "out.png").symlink_to(folder.parent / "secret.png")
        (folder / "cat" / "dead.png").symlink_to("nothing")
        (folder / "cat" / "loop.png").symlink_to("loop.png")
        (folder / "away").symlink_to(folder.parent)
        os.mkfifo(folder / "cat" / "pipe.png")
        (Path(os.fsdecode(os.fsencode(folder) + b"/cat/\xff.png"))).write_bytes(b"x")
        listing = listed(folder)
        assert [entry.key for entry in listing.entries] == ["a.png", "in.png"]
        reasons = {problem.key: problem.reason for problem in listing.problems}
        assert reasons.keys() == {
            "cat/out.png", "cat/dead.png", "cat/loop.png", "cat/pipe.png", "away", "cat/\\udcff.png"
        }  # fmt: skip
        assert reasons["cat/out.png"] == reasons["away"] == "a link that leads out of the folder"
        assert reasons["cat/pipe.png"] == "not a regular file"

    def test_order_is_by_source_and_key(self, folder: Path) -> None:
        put(folder, "b/1.png", "a-b/1.png", "a/2.png", "a/10.png")
        entries = listed(folder).entries
        assert [(entry.source, entry.key) for entry in entries] == sorted((e.source, e.key) for e in entries)


class TestSidecars:
    def test_fields_kinds_and_roles_are_found(self, folder: Path) -> None:
        put(folder, "p/1.png", "p/2.png", "m/1.png", "m/2.png")
        (folder / "metadata.csv").write_text(
            "image,mask,tumor,patient,age,dose,is_ill,seen,note\n"
            "p/2.png,m/2.png,yes,p2,61,0.5,true,2026-05-31T10:00:00+02:00,two words\n"
            "p/1.png,m/1.png,no,p1,,1e3,false,2026-05-30,\n"
        )
        listing = listed(folder, label="tumor", group="patient")
        assert listing.schema.fields == [FieldSchema(name="image", kind="image"), FieldSchema(name="mask", kind="mask")]
        assert {column.name: (column.kind, column.role) for column in listing.schema.columns} == {
            "tumor": ("category", "label"),
            "patient": ("category", "group"),
            "age": ("int", None),
            "dose": ("float", None),
            "is_ill": ("bool", None),
            "seen": ("timestamp", None),
            "note": ("text", None),
        }
        first, second = listing.entries
        assert (first.source, first.key, first.files) == (
            "slides/p", "1.png", {"image": "p/1.png", "mask": "m/1.png"}
        )  # fmt: skip
        assert second.values == {
            "tumor": "yes", "patient": "p2", "age": 61, "dose": 0.5, "is_ill": True,
            "seen": "2026-05-31T08:00:00+00:00", "note": "two words",
        }  # fmt: skip
        assert first.values["age"] is None
        assert first.values["seen"] == "2026-05-30T00:00:00+00:00"

    def test_parquet_keeps_its_types(self, folder: Path) -> None:
        put(folder, "1.png", "2.png")
        table = pa.table(
            {
                "path": ["1.png", "2.png"],
                "tags": [["a", "b"], []],
                "when": pa.array([0, 1_000_000], pa.timestamp("us", tz="UTC")),
                "count": pa.array([1, None], pa.int32()),
                "share": [0.25, float("nan")],
            }
        )
        pq.write_table(table, folder / "labels.parquet")
        listing = listed(folder, sidecar="labels.parquet")
        assert [field.name for field in listing.schema.fields] == ["image"]
        kinds = {column.name: column.kind for column in listing.schema.columns}
        assert kinds == {"tags": "multi_category", "when": "timestamp", "count": "int", "share": "float"}
        assert listing.entries[1].values == {
            "tags": [], "when": "1970-01-01T00:00:01+00:00", "count": None, "share": None
        }  # fmt: skip
        assert listing.categories() == {"tags": ["a", "b"]}

    def test_rows_that_cannot_be_samples_are_put_aside(self, folder: Path) -> None:
        put(folder, *(f"{n}.png" for n in range(5)))
        put(folder.parent, "secret.png")
        (folder / "metadata.csv").write_text(
            "image,mask\n0.png,1.png\n2.png,gone.png\n3.png,\n../secret.png,1.png\n/etc/passwd,1.png\n0.png,1.png\n"
        )
        listing = listed(folder, fields={"image": "image", "mask": "mask"})
        assert [entry.key for entry in listing.entries] == ["0.png"]
        assert {(problem.key, problem.reason) for problem in listing.problems} == {
            ("2.png", "field 'mask': the file 'gone.png' does not exist"),
            ("3.png", "no file is given for the field 'mask'"),
            ("../secret.png", "field 'image': '../secret.png' is not a path below the folder; "
             "write it relative to the folder"),
            ("/etc/passwd", "field 'image': '/etc/passwd' is not a path below the folder; "
             "write it relative to the folder"),
            ("slides/0.png", "listed more than once"),
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("image,age\n", "no rows"),
            ("image,age\n1.png\n", "cannot be read"),
            ("image,my age\n1.png,1\n", "'my age' is no valid column name"),
            ("image,id\n1.png,1\n", "reserved name"),
            ("picture,age\ngone.png,1\n", "holds paths"),
        ],
    )
    def test_sidecar_that_cannot_be_used_says_why(self, folder: Path, text: str, message: str) -> None:
        put(folder, "1.png")
        (folder / "metadata.csv").write_text(text)
        with pytest.raises(InvalidInput, match=message) as refused:
            listed(folder)
        assert refused.value.code == ErrorCode.INGEST_SIDECAR_INVALID


class TestDeclaredSchema:
    declared = DatasetSchema(
        fields=[FieldSchema(name="image", kind="image")],
        columns=[
            ColumnSchema(name="tumor", kind="category", role="label", values=["no"]),
            ColumnSchema(name="age", kind="int"),
        ],
    )

    def test_value_of_another_kind_is_put_aside(self, folder: Path) -> None:
        put(folder, "1.png", "2.png")
        (folder / "metadata.csv").write_text("image,tumor,age\n1.png,yes,old\n2.png,yes,3\n")
        listing = listed(folder, self.declared)
        assert [entry.values for entry in listing.entries] == [{"tumor": "yes", "age": 3}]
        assert [problem.reason for problem in listing.problems] == ["column 'age': 'old' is not a whole number"]
        assert listing.schema == self.declared
        assert listing.categories() == {"tumor": ["yes"]}

    def test_missing_column_is_empty_and_folders_give_the_label(self, folder: Path) -> None:
        put(folder, "no/1.png")
        assert listed(folder, self.declared).entries[0].values == {"tumor": "no"}

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("image,tumor,size\n1.png,no,3\n", {}, "does not have: size"),
            ("image,tumor\n1.png,no\n", {"label": "age"}, "label column is 'tumor', not 'age'"),
            ("image,tumor\n1.png,no\n", {"group": "tumor"}, "group column is none"),
            ("image,mask,tumor\n1.png,1.png,no\n", {}, "gives the fields image, mask, but the dataset has image"),
        ],
    )
    def test_other_shape_is_refused(self, folder: Path, text: str, options: dict[str, str], message: str) -> None:
        put(folder, "1.png")
        (folder / "metadata.csv").write_text(text)
        with pytest.raises(InvalidInput, match=message) as refused:
            listed(folder, self.declared, **options)
        assert refused.value.code == ErrorCode.INGEST_SCHEMA_MISMATCH
