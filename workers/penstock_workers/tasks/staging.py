"""The staged table of a shard: built from stored samples, kept in the store until the version is published."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock_server.domain.datasets.schemas import DatasetSchema
from penstock_server.manifests.staged import staged_schema
from penstock_workers.tasks.samples import ReadySample


class StagedRows:
    """Collects the rows of one shard, in plan order."""

    def __init__(self, schema: DatasetSchema) -> None:
        self._dataset_schema = schema
        self._schema = staged_schema(schema)
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}

    def __len__(self) -> int:
        return len(self._columns["sample_id"])

    def extend(self, samples: Sequence[ReadySample]) -> None:
        """Add samples that are in the store; their bytes are not kept."""
        for sample in samples:
            self._add(sample)

    def to_bytes(self) -> bytes:
        """The table as an Arrow IPC file."""
        arrays = [pa.array(self._columns[field.name], type=field.type) for field in self._schema]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._schema) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def _add(self, sample: ReadySample) -> None:
        columns = self._columns
        columns["sample_id"].append(sample.sample_id.bytes)
        columns["source"].append(sample.source)
        columns["key"].append(sample.key)
        for name, field in sample.fields.items():
            columns[f"object:{name}"].append(sample.object_id.bytes)
            columns[f"size:{name}"].append(len(field.data))
            columns[f"xxh3:{name}"].append(field.xxh3)
            columns[f"blake3:{name}"].append(field.blake3)
            columns[f"media:{name}"].append(field.media_type)
            columns[f"width:{name}"].append(field.width)
            columns[f"height:{name}"].append(field.height)
        for column, value in zip(self._dataset_schema.columns, sample.values, strict=True):
            is_moment = column.kind == "timestamp" and value is not None
            columns[f"meta:{column.name}"].append(datetime.fromisoformat(value) if is_moment else value)
        columns["thumbnail"].append(None if sample.thumbnail_id is None else sample.thumbnail_id.bytes)


def read_staged(content: bytes) -> pa.Table:
    """The table of `StagedRows.to_bytes`."""
    with pa.ipc.open_file(pa.BufferReader(content)) as reader:
        return reader.read_all()
