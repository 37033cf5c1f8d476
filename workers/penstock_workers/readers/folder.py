"""A folder of files in which each folder at the top is a class."""

from pathlib import PurePosixPath

from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema, FieldSchema
from penstock_workers.readers.files import FolderSource, walk
from penstock_workers.readers.listing import Listing, Problem, SampleEntry

DEFAULT_FIELD = "image"
DEFAULT_LABEL = "label"


def read_folder(source: FolderSource, *, label: str | None, field: str = DEFAULT_FIELD) -> Listing:
    """Every file is a sample; its class is the first folder on its path, and files beside those have none."""
    column = label or DEFAULT_LABEL
    found: list[tuple[str, str | None]] = []
    problems: list[Problem] = []
    for item in walk(source):
        if isinstance(item, Problem):
            problems.append(item)
        else:
            parts = PurePosixPath(item).parts
            found.append((item, parts[0] if len(parts) > 1 else None))
    has_classes = any(name is not None for _, name in found)
    columns = [ColumnSchema(name=column, kind="category", role="label")] if has_classes else []
    schema = DatasetSchema(fields=[FieldSchema(name=field, kind="image")], columns=columns)
    entries = [
        SampleEntry(*source.identity(path), {field: path}, {column: name} if has_classes else {})
        for path, name in found
    ]
    return Listing(schema, entries, problems)
