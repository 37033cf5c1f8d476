"""A CSV or Parquet file beside the data: a row a sample, paths in some columns, metadata in the others."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pydantic import ValidationError

from penstock.contract.codes import ErrorCode
from penstock.contract.names import InvalidName, require_column
from penstock_server.domain.datasets.schemas import ColumnRole, ColumnSchema, DatasetSchema, FieldKind, FieldSchema
from penstock_server.domain.jobs.sources import sidecar_columns, sidecar_invalid
from penstock_server.errors import InvalidInput
from penstock_workers.readers.files import FolderSource, Unreadable
from penstock_workers.readers.folder import DEFAULT_FIELD
from penstock_workers.readers.listing import Listing, Problem, SampleEntry, Value
from penstock_workers.readers.values import NotOfKind, infer_kind, to_value

_PROBED_ROWS = 20
_PLAIN_PATH_NAMES = frozenset({"path", "file", "filename", "file_name"})
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")


def read_sidecar(
    source: FolderSource,
    path: Path,
    *,
    label: str | None,
    group: str | None,
    fields: Mapping[str, str] | None,
    declared: DatasetSchema | None,
) -> Listing:
    """The samples that the rows name; a row that cannot be one is put aside with its line's reason."""
    columns = _read_columns(path)
    paths = dict(fields) if fields else _find_path_columns(source, columns)
    _require_columns(path, columns, [*paths.values(), *(name for name in (label, group) if name)])
    if not paths:
        raise sidecar_invalid(
            f"no column of '{path.name}' holds paths of files in the folder; write them relative to it, "
            "for example in a column 'image'"
        )
    if declared is not None:
        _require_declared(path, columns, paths, declared)
    schema = declared or _infer_schema(columns, paths, label=label, group=group)
    kinds = {column.name: column for column in schema.columns if column.name in columns}
    listing = Listing(schema, [])
    count = len(next(iter(columns.values())))
    main = next(iter(paths.values()))
    for row in range(count):
        key = str(columns[main][row] or f"{path.name}, row {row + 1}")
        try:
            files = {name: _located(source, columns[column][row], name) for name, column in paths.items()}
            values: dict[str, Value] = {name: _value(columns[name][row], kinds[name]) for name in kinds}
        except (Unreadable, NotOfKind) as error:
            listing.problems.append(Problem(key, str(error)))
        else:
            listing.entries.append(SampleEntry(*source.identity(_normal(key)), files, values))
    return listing


def _read_columns(path: Path) -> dict[str, list[Any]]:
    names = sidecar_columns(path)
    try:
        if path.suffix.lower() == ".parquet":
            table = pq.read_table(path)
        else:
            # Text first: the kinds are found by rules of our own, the same for every version of the parser.
            options = pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=list(_NULLS), strings_can_be_null=True
            )
            table = pa_csv.read_csv(
                path, convert_options=options, parse_options=pa_csv.ParseOptions(newlines_in_values=True)
            )
    except (pa.ArrowException, OSError) as error:
        raise sidecar_invalid(f"'{path.name}' cannot be read: {str(error).splitlines()[0]}") from None
    if not table.num_rows:
        raise sidecar_invalid(f"'{path.name}' has a header but no rows")
    return {str(name): table.column(name).to_pylist() for name in table.column_names}


def _find_path_columns(source: FolderSource, columns: Mapping[str, list[Any]]) -> dict[str, str]:
    """Columns in which most of the first values are files of the folder, by field name."""
    found: dict[str, str] = {}
    for name, cells in columns.items():
        probed = [cell for cell in cells if cell is not None][:_PROBED_ROWS]
        if not probed or not all(isinstance(cell, str) for cell in probed):
            continue
        existing = sum(_is_file(source, cell) for cell in probed)
        if existing * 2 > len(probed):
            field = DEFAULT_FIELD if name.lower() in _PLAIN_PATH_NAMES else name
            found.setdefault(field, name)
    return dict(sorted(found.items(), key=lambda item: item[0] != DEFAULT_FIELD))


def _infer_schema(
    columns: Mapping[str, list[Any]], paths: Mapping[str, str], *, label: str | None, group: str | None
) -> DatasetSchema:
    fields = [
        FieldSchema(name=_named(name, "field"), kind=_field_kind(name, columns[column]))
        for name, column in paths.items()
    ]
    described: list[ColumnSchema] = []
    for name, cells in columns.items():
        if name in paths.values():
            continue
        kind, role = infer_kind(cells), _role(name, label=label, group=group)
        if role is not None and kind != "multi_category":
            kind = "category"
        described.append(ColumnSchema(name=_named(name, "column"), kind=kind, role=role))
    try:
        return DatasetSchema(fields=fields, columns=described)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise sidecar_invalid(f"its columns cannot be used: {problem}") from None


def _role(name: str, *, label: str | None, group: str | None) -> ColumnRole | None:
    if name == label:
        return "label"
    return "group" if name == group else None


def _require_declared(
    path: Path, columns: Mapping[str, list[Any]], paths: Mapping[str, str], declared: DatasetSchema
) -> None:
    """A column that the dataset does not have is refused: dropping it in silence would lose data."""
    known = {column.name for column in declared.columns} | set(paths.values())
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise InvalidInput(
            ErrorCode.INGEST_SCHEMA_MISMATCH,
            f"'{path.name}' has columns that the dataset does not have: {', '.join(unknown)}; "
            "remove them from the sidecar, or ingest into a new dataset",
        )


def _field_kind(name: str, cells: list[Any]) -> FieldKind:
    suffix = next((PurePosixPath(cell).suffix.lower() for cell in cells if isinstance(cell, str)), "")
    if suffix == ".npy":
        return "array"
    if suffix in (".txt", ".json", ".xml"):
        return "text"
    if suffix in (".bin", ".dat", ".gz", ".zip", ".npz", ".pt"):
        return "bytes"
    return "mask" if "mask" in name.lower() else "image"


def _value(cell: object, column: ColumnSchema) -> Value:
    try:
        return to_value(cell, column.kind)
    except NotOfKind as error:
        msg = f"column '{column.name}': {error}"
        raise NotOfKind(msg) from None


def _located(source: FolderSource, cell: object, field: str) -> str:
    if not isinstance(cell, str):
        msg = f"no file is given for the field '{field}'"
        raise Unreadable(msg)
    try:
        source.locate(cell)
    except Unreadable as error:
        msg = f"field '{field}': {error}"
        raise Unreadable(msg) from None
    return _normal(cell)


def _normal(path: str) -> str:
    return PurePosixPath(path).as_posix()


def _is_file(source: FolderSource, cell: str) -> bool:
    try:
        source.locate(cell)
    except Unreadable:
        return False
    return True


def _named(name: str, what: str) -> str:
    try:
        return require_column(name, what=what)
    except InvalidName as error:
        raise sidecar_invalid(f"{error}; rename it in the sidecar") from None


def _require_columns(path: Path, columns: Mapping[str, list[Any]], wanted: list[str]) -> None:
    for name in wanted:
        if name not in columns:
            raise sidecar_invalid(f"the column '{name}' is not in '{path.name}'; it has {', '.join(columns)}")
