"""May this folder be ingested, and does it hold something? Asked at the request and again by the worker."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.contract.codes import ErrorCode
from penstock_server.errors import InvalidInput

DEFAULT_SIDECARS = ("metadata.csv", "metadata.parquet")
_SIDECAR_SUFFIXES = (".csv", ".parquet")
_HEADER_LIMIT_BYTES = 1024 * 1024


def checked_folder(path: str, allowed_roots: Sequence[Path]) -> Path:
    """The real path of a folder inside the allowed roots that holds at least one file."""
    if not os.path.isabs(path):
        raise InvalidInput(
            ErrorCode.INGEST_FOLDER_NOT_FOUND,
            f"'{path}' is not an absolute path; the server does not know your working folder, give the whole path",
            context={"path": path},
        )
    try:
        folder = Path(path).resolve(strict=True)
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError):
        folder, is_folder = Path(os.path.normpath(path)), False
    # A path outside the roots gets one answer whether it exists or not.
    if not any(folder.is_relative_to(root.resolve()) for root in allowed_roots):
        roots = ", ".join(str(root) for root in allowed_roots)
        raise InvalidInput(
            ErrorCode.INGEST_FOLDER_NOT_ALLOWED,
            f"the folder '{path}' is outside of what this server may read ({roots}); "
            "move the data there or add its folder to PENSTOCK_INGEST__ALLOWED_ROOTS",
            context={"path": path},
        )
    if not is_folder:
        raise InvalidInput(
            ErrorCode.INGEST_FOLDER_NOT_FOUND,
            f"there is no folder '{path}' on the server's machine; check the path and that it is mounted there",
            context={"path": path},
        )
    if not _has_files(folder):
        raise InvalidInput(
            ErrorCode.INGEST_FOLDER_EMPTY,
            f"the folder '{path}' holds no visible file; put the pictures there, or name another folder",
            context={"path": path},
        )
    return folder


def find_sidecar(folder: Path, name: str | None) -> Path | None:
    """The sidecar's path: the one that was named, or a default one if it is there."""
    if name is None:
        return next((folder / each for each in DEFAULT_SIDECARS if (folder / each).is_file()), None)
    if not name.lower().endswith(_SIDECAR_SUFFIXES):
        raise sidecar_invalid(f"'{name}' is neither .csv nor .parquet; write the sidecar as one of the two")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise sidecar_invalid(f"'{name}' is outside of the folder; put the sidecar into the folder '{folder}'")
    if not path.is_file():
        raise sidecar_invalid(f"there is no file '{name}' in '{folder}'; give its path relative to the folder")
    return path


def sidecar_columns(path: Path) -> list[str]:
    """The column names of a sidecar; raises InvalidInput when it cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            names = [str(name) for name in pq.read_schema(path).names]
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                header = file.readline(_HEADER_LIMIT_BYTES)
            names = next(csv.reader([header]), [])
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise sidecar_invalid(f"'{path.name}' cannot be read: {str(error).splitlines()[0]}") from None
    if not names:
        raise sidecar_invalid(f"'{path.name}' has no header line with column names")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise sidecar_invalid(f"'{path.name}' has the column {', '.join(map(repr, repeated))} more than once")
    return names


def check_roles(folder: Path, *, sidecar: str | None, label: str | None, group: str | None) -> None:
    """The columns that are to be label and group must be in the sidecar; without one only folders give a label."""
    path = find_sidecar(folder, sidecar)
    if path is None:
        if group is not None:
            raise sidecar_invalid(
                f"group '{group}' needs a sidecar with that column: put a metadata.csv with paths into the folder"
            )
        return
    names = sidecar_columns(path)
    for role, name in (("label", label), ("group", group)):
        if name is not None and name not in names:
            raise sidecar_invalid(f"the {role} column '{name}' is not in '{path.name}'; it has {', '.join(names)}")


def sidecar_invalid(detail: str) -> InvalidInput:
    return InvalidInput(ErrorCode.INGEST_SIDECAR_INVALID, detail)


def _has_files(folder: Path) -> bool:
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(not name.startswith(".") for name in files):
            return True
    return False
