"""From an ingest request to the list of samples it asks for."""

from pathlib import Path

from penstock.contract.codes import ErrorCode
from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.domain.jobs.schemas import IngestCreate
from penstock_server.domain.jobs.sources import find_sidecar
from penstock_server.errors import InvalidInput
from penstock_workers.readers.files import FolderSource
from penstock_workers.readers.folder import read_folder
from penstock_workers.readers.listing import Listing
from penstock_workers.readers.sidecar import read_sidecar


def read_source(folder: Path, request: IngestCreate, declared: DatasetSchema | None) -> Listing:
    """List a folder by its sidecar, or by its folders; `declared` is the dataset's schema when it has one."""
    source = folder_source(folder, request)
    sidecar = find_sidecar(folder, request.sidecar)
    if declared is not None:
        _require_roles(request, declared)
    if sidecar is None:
        listing = _by_folders(source, request, declared)
    else:
        listing = read_sidecar(
            source, sidecar, label=request.label, group=request.group, fields=request.fields, declared=declared
        )
    listing.settle()
    if declared is not None:
        _require_fields(listing, declared)
    return listing


def folder_source(folder: Path, request: IngestCreate) -> FolderSource:
    return FolderSource(folder, request.source.name or folder.name)


def _by_folders(source: FolderSource, request: IngestCreate, declared: DatasetSchema | None) -> Listing:
    if declared is None:
        return read_folder(source, label=request.label)
    label = declared.label
    listing = read_folder(source, label=label.name if label else None, field=declared.fields[0].name)
    listing.schema = declared
    return listing


def _require_roles(request: IngestCreate, declared: DatasetSchema) -> None:
    for role, asked, column in (
        ("label", request.label, declared.label),
        ("group", request.group, declared.group),
    ):
        if asked is not None and (column is None or column.name != asked):
            has = f"'{column.name}'" if column else "none"
            raise InvalidInput(
                ErrorCode.INGEST_SCHEMA_MISMATCH,
                f"the dataset's {role} column is {has}, not '{asked}'; leave {role} out, or ingest into a new dataset",
            )


def _require_fields(listing: Listing, declared: DatasetSchema) -> None:
    """A dataset's fields are fixed with its first version; a sample must bring all of them."""
    wanted = {field.name for field in declared.fields}
    given = {name for entry in listing.entries[:1] for name in entry.files}
    if listing.entries and given != wanted:
        raise InvalidInput(
            ErrorCode.INGEST_SCHEMA_MISMATCH,
            f"this source gives the fields {', '.join(sorted(given))}, but the dataset has "
            f"{', '.join(sorted(wanted))}; give a sidecar with a path column for each",
        )
