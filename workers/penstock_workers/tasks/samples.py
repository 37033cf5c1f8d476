"""One sample from files to what the store and the manifest need."""

import io
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from penstock import _native
from penstock.contract.ids import content_hash, object_id, own_object_id, sample_id
from penstock.contract.records import OWN_THUMBNAIL
from penstock_server.domain.datasets.schemas import DatasetSchema, FieldSchema
from penstock_server.jobs.leases import Aside
from penstock_workers.imaging import NotAnImage, read_picture
from penstock_workers.readers.files import FolderSource, Unreadable

_ARRAY_RANK_LIMIT = 32


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field's bytes and the facts about them."""

    data: bytes
    xxh3: int
    blake3: bytes
    media_type: str
    width: int | None
    height: int | None


@dataclass(frozen=True, slots=True)
class ReadySample:
    """A sample that has been read and checked, and is not stored yet."""

    sample_id: UUID
    object_id: UUID
    source: str
    key: str
    fields: dict[str, StoredField]
    values: list[Any]
    thumbnail: bytes | None
    thumbnail_id: UUID | None

    @property
    def byte_count(self) -> int:
        return sum(len(field.data) for field in self.fields.values())


class SampleReader:
    """Reads rows of a shard's plan: `[source, key, [path a field], [value a column]]`."""

    def __init__(self, source: FolderSource, dataset_id: UUID, schema: DatasetSchema) -> None:
        self._source = source
        self._dataset_id = dataset_id
        self._fields = schema.fields
        self._shown = next((field.name for field in schema.fields if field.kind == "image"), None)

    def read(self, row: list[Any]) -> ReadySample | Aside:
        """The sample, or why it is put aside."""
        source, key, paths, values = row
        fields: dict[str, StoredField] = {}
        thumbnail: bytes | None = None
        for field, path in zip(self._fields, paths, strict=True):
            try:
                fields[field.name], picture = self._read_field(field, path)
            except (Unreadable, NotAnImage) as error:
                return Aside(path, str(error))
            thumbnail = picture or thumbnail
        content = content_hash({name: field.blake3 for name, field in fields.items()})
        sample = sample_id(self._dataset_id, source, key, content)
        return ReadySample(
            sample_id=sample,
            object_id=object_id(self._dataset_id, [*fields], content),
            source=source,
            key=key,
            fields=fields,
            values=values,
            thumbnail=thumbnail,
            thumbnail_id=None if thumbnail is None else own_object_id(self._dataset_id, OWN_THUMBNAIL, sample.hex),
        )

    def _read_field(self, field: FieldSchema, path: str) -> tuple[StoredField, bytes | None]:
        data = self._source.read(path)
        media_type, width, height, thumbnail = "application/octet-stream", None, None, None
        if field.kind in ("image", "mask"):
            picture = read_picture(data, is_thumbnail_wanted=field.name == self._shown)
            media_type, width, height = picture.media_type, picture.width, picture.height
            thumbnail = picture.thumbnail
        elif field.kind == "text":
            media_type = "text/plain; charset=utf-8"
            _require_text(data)
        elif field.kind == "array":
            media_type = "application/x-npy"
            _require_array(data)
        stored = StoredField(data, _native.xxh3_64(data), _native.blake3(data), media_type, width, height)
        return stored, thumbnail


def _require_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        msg = "the file is not UTF-8 text"
        raise Unreadable(msg) from None


def _require_array(data: bytes) -> None:
    """Only plain numbers: an array of Python objects is a pickle, which runs code when it is read."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        msg = f"not a NumPy array file that can be read without pickle: {str(error).splitlines()[0]}"
        raise Unreadable(msg) from None
    if not isinstance(array, np.ndarray) or array.ndim > _ARRAY_RANK_LIMIT:
        msg = "not a single NumPy array (.npy)"
        raise Unreadable(msg)
