"""A listing cut into shards, and a shard into batches that fit into memory."""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetSchema
from penstock_server.jobs.leases import ShardPlan
from penstock_workers.readers import SampleEntry
from penstock_workers.readers.files import FolderSource

SHARD_SAMPLES = 500
BATCH_SAMPLES = 64
BATCH_BYTES = 64 * 1024 * 1024

Row = list[Any]


def cut_shards(entries: Sequence[SampleEntry], schema: DatasetSchema) -> Iterator[ShardPlan]:
    """Rows `[source, key, [path a field], [value a column]]` in plan order; categories are codes of the schema."""
    codes = {
        column.name: {value: code for code, value in enumerate(column.values or [])}
        for column in schema.columns
        if column.is_categorical
    }
    names = [field.name for field in schema.fields]
    for start in range(0, len(entries), SHARD_SAMPLES):
        rows = [
            [
                entry.source,
                entry.key,
                [entry.files[name] for name in names],
                [_coded(entry, column, codes.get(column.name)) for column in schema.columns],
            ]
            for entry in entries[start : start + SHARD_SAMPLES]
        ]
        yield ShardPlan({"rows": rows}, len(rows))


def cut_batches(rows: Sequence[Row], source: FolderSource) -> Iterator[list[Row]]:
    """Consecutive rows whose files together have few bytes; a large file is a batch of its own."""
    batch: list[Row] = []
    byte_count = 0
    for row in rows:
        size = sum(source.size_bytes(path) for path in row[2])
        if batch and (len(batch) == BATCH_SAMPLES or byte_count + size > BATCH_BYTES):
            yield batch
            batch, byte_count = [], 0
        batch.append(row)
        byte_count += size
    if batch:
        yield batch


def _coded(entry: SampleEntry, column: ColumnSchema, codes: dict[str, int] | None) -> Any:
    value = entry.values.get(column.name)
    if codes is None or value is None:
        return value
    if isinstance(value, list):
        return sorted(codes[each] for each in set(value))
    return codes[str(value)]
