from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.contract.codes import ErrorCode
from penstock_server.domain.jobs.sources import check_roles, checked_folder, find_sidecar, sidecar_columns
from penstock_server.errors import InvalidInput


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_folder_inside_a_root_is_resolved(root: Path) -> None:
    (root / "slides").mkdir()
    (root / "slides" / "a.png").write_bytes(b"x")
    (root / "link").symlink_to(root / "slides")
    assert checked_folder(str(root / "link"), [root]) == root / "slides"


@pytest.mark.parametrize("path", ["..", "root/../outside", "outside", "link"])
def test_folder_outside_the_roots_is_refused_whether_it_exists_or_not(root: Path, path: str) -> None:
    outside = root.parent / "outside"
    (root.parent / "link").symlink_to(outside)
    for exists in (False, True):
        if exists:
            outside.mkdir()
            (outside / "a.png").write_bytes(b"x")
        with pytest.raises(InvalidInput, match="PENSTOCK_INGEST__ALLOWED_ROOTS") as refused:
            checked_folder(str(root.parent / path), [root])
        assert refused.value.code == ErrorCode.INGEST_FOLDER_NOT_ALLOWED


def test_link_inside_a_root_that_leaves_it_is_refused(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "a.png").write_bytes(b"x")
    (root / "link").symlink_to(outside)
    with pytest.raises(InvalidInput) as refused:
        checked_folder(str(root / "link"), [root])
    assert refused.value.code == ErrorCode.INGEST_FOLDER_NOT_ALLOWED


@pytest.mark.parametrize("path", ["slides", "relative/slides", "nul\x00byte"])
def test_path_that_is_not_absolute_is_refused(root: Path, path: str) -> None:
    with pytest.raises(InvalidInput, match="absolute") as refused:
        checked_folder(path, [root])
    assert refused.value.code == ErrorCode.INGEST_FOLDER_NOT_FOUND


def test_missing_folder_and_file_are_not_found(root: Path) -> None:
    (root / "file").write_bytes(b"x")
    for name in ("nothing", "file", "nul\x00byte", "x" * 5000):
        with pytest.raises(InvalidInput, match="there is no folder") as refused:
            checked_folder(f"{root}/{name}", [root])
        assert refused.value.code == ErrorCode.INGEST_FOLDER_NOT_FOUND


def test_folder_without_visible_files_is_empty(root: Path) -> None:
    (root / "deep" / ".hidden").mkdir(parents=True)
    (root / "deep" / ".hidden" / "a.png").write_bytes(b"x")
    (root / ".DS_Store").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="holds no visible file; put the pictures there, or name another") as refused:
        checked_folder(str(root), [root])
    assert refused.value.code == ErrorCode.INGEST_FOLDER_EMPTY


def test_default_sidecar_is_found(root: Path) -> None:
    assert find_sidecar(root, None) is None
    pq.write_table(pa.table({"image": ["a"]}), root / "metadata.parquet")
    assert find_sidecar(root, None) == root / "metadata.parquet"
    assert sidecar_columns(root / "metadata.parquet") == ["image"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("labels.xlsx", "neither .csv nor .parquet"), ("../labels.csv", "outside"), ("labels.csv", "there is no file")],
)
def test_sidecar_that_cannot_be_is_refused(root: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        find_sidecar(root, name)
    assert refused.value.code == ErrorCode.INGEST_SIDECAR_INVALID


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no header"),
        ("a.csv", b"image,image\n", "more than once"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read"),
        ("a.parquet", b"not parquet", "cannot be read"),
    ],
)
def test_unreadable_sidecar_is_refused(root: Path, name: str, content: bytes, message: str) -> None:
    (root / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        sidecar_columns(root / name)


def test_label_and_group_must_be_columns(root: Path) -> None:
    check_roles(root, sidecar=None, label="tumor", group=None)
    with pytest.raises(InvalidInput, match="needs a sidecar"):
        check_roles(root, sidecar=None, label=None, group="patient")
    (root / "metadata.csv").write_text("\ufeffimage,tumor\na.png,yes\n")
    check_roles(root, sidecar=None, label="tumor", group=None)
    with pytest.raises(InvalidInput, match=r"'patient' is not in 'metadata\.csv'; it has image, tumor"):
        check_roles(root, sidecar=None, label="tumor", group="patient")
