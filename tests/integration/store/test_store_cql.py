"""The native store on a real Cassandra."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from unit.native.test_stats_document import documented

from harness.cassandra.cluster import CassandraCluster
from harness.engines import engine_on
from penstock._errors import ConfigError, SampleCorrupt, SampleMissing, StoreUnavailable
from penstock._native import Engine, Store, xxh3_64

CHUNK_BYTES = 512 * 1024
OpenStore = Callable[..., Store]


def _objects(*fields: bytes) -> list[tuple[bytes, list[tuple[str, bytes]]]]:
    return [(os.urandom(16), [("image", field)]) for field in fields]


def _cells(cluster: CassandraCluster, keyspace: str, dataset_id: bytes, object_id: bytes) -> list[tuple[object, ...]]:
    rows = cluster.session.execute(
        f"SELECT field, chunk, layout, chunk_bytes, total_bytes, xxh3, data FROM {keyspace}.samples"
        f" WHERE dataset_id = {_uuid(dataset_id)} AND object_id = {_uuid(object_id)}"
    )
    return [tuple(row.values()) for row in rows]


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def test_write_then_read_gives_the_same_bytes(store: Store, dataset_id: bytes) -> None:
    image, mask = os.urandom(100_000), os.urandom(700)
    object_id = os.urandom(16)
    store.write("samples", dataset_id, [(object_id, [("image", image), ("mask", mask)])])
    assert store.read("samples", dataset_id, [object_id]) == [{"image": image, "mask": mask}]
    assert store.read("samples", dataset_id, [object_id], ["mask"]) == [{"mask": mask}]
    assert list(store.read("samples", dataset_id, [object_id], ["mask", "image"])[0] or ()) == ["mask", "image"]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 21 * CHUNK_BYTES + 5])
def test_field_of_any_number_of_chunks_survives(store: Store, dataset_id: bytes, size: int) -> None:
    # 21 chunks are more than a page holds: the page after it has to be followed.
    objects = _objects(os.urandom(size))
    store.write("samples", dataset_id, objects)
    assert store.read("samples", dataset_id, [objects[0][0]]) == [{"image": objects[0][1][0][1]}]


def test_rows_are_laid_out_as_documented(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes
) -> None:
    data = os.urandom(CHUNK_BYTES + 10)
    objects = _objects(data)
    store.write("samples", dataset_id, objects)
    signed = int.from_bytes(xxh3_64(data).to_bytes(8), signed=True)
    assert _cells(cassandra, tables, dataset_id, objects[0][0]) == [
        ("image", 0, 1, CHUNK_BYTES, len(data), signed, data[:CHUNK_BYTES]),
        ("image", 1, None, None, None, None, data[CHUNK_BYTES:]),
    ]


def test_writing_again_changes_nothing(store: Store, dataset_id: bytes) -> None:
    objects = _objects(b"one", b"two")
    store.write("samples", dataset_id, objects)
    store.write("samples", dataset_id, objects)
    assert store.read("samples", dataset_id, [objects[1][0]]) == [{"image": b"two"}]
    assert len(store.scan("samples", dataset_id)) == 2


@pytest.mark.parametrize("size", [0, 100, CHUNK_BYTES, 2 * CHUNK_BYTES])
def test_writing_again_with_fewer_chunks_gives_the_new_content(store: Store, dataset_id: bytes, size: int) -> None:
    object_id, shorter = os.urandom(16), os.urandom(size)
    store.write("samples", dataset_id, [(object_id, [("image", os.urandom(3 * CHUNK_BYTES)), ("mask", b"before")])])
    store.write("samples", dataset_id, [(object_id, [("image", shorter), ("mask", b"after")])])
    assert store.read("samples", dataset_id, [object_id]) == [{"image": shorter, "mask": b"after"}]
    assert store.read("samples", dataset_id, [object_id], ["image"]) == [{"image": shorter}]


def test_first_chunks_are_written_last(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes
) -> None:
    object_id = os.urandom(16)
    fields = [(name, os.urandom(3 * CHUNK_BYTES)) for name in ("image", "mask")]
    store.write("samples", dataset_id, [(object_id, fields)])
    rows = cassandra.session.execute(
        f"SELECT chunk, WRITETIME(data) AS written_at FROM {tables}.samples"
        f" WHERE dataset_id = {_uuid(dataset_id)} AND object_id = {_uuid(object_id)}"
    )
    first = [int(str(row["written_at"])) for row in rows if row["chunk"] == 0]
    later = [int(str(row["written_at"])) for row in rows if row["chunk"] != 0]
    assert (len(first), len(later)) == (2, 4)
    # Whoever sees a first chunk can rely on all others. The node's clock counts milliseconds.
    assert min(first) >= max(later)


def test_absent_object_is_none_after_escalation(store: Store, dataset_id: bytes) -> None:
    objects = _objects(b"there")
    store.write("samples", dataset_id, objects)
    before = store.counters()["escalations"]
    assert store.read("samples", dataset_id, [os.urandom(16), objects[0][0]]) == [None, {"image": b"there"}]
    assert store.counters()["escalations"] == before + 1
    assert store.read("samples", dataset_id, [objects[0][0]], ["image", "mask"]) == [None]
    assert store.counters()["damaged"] == 0


def test_field_that_is_named_twice_is_refused(store: Store, dataset_id: bytes) -> None:
    objects = _objects(b"there")
    store.write("samples", dataset_id, objects)
    with pytest.raises(ValueError, match='fields has "image" twice: name each field once'):
        store.read("samples", dataset_id, [objects[0][0]], ["image", "image"])
    assert store.counters()["escalations"] == 0


def _engine(store: Store, dataset_id: bytes, objects: list[tuple[bytes, list[tuple[str, bytes]]]]) -> Engine:
    """Reads the objects' images one by one; a sample has the id of its object."""
    ids = b"".join(object_id for object_id, _ in objects)
    images = [fields[0][1] for _, fields in objects]
    sizes = np.array([len(image) for image in images], "<u8").tobytes()
    sums = np.array([xxh3_64(image) for image in images], "<u8").tobytes()
    return engine_on(
        store,
        dataset_id=dataset_id,
        fields=["image"],
        parts=[(ids, [(ids, sizes, sums)])],
        batch_size=1,
        shuffle=False,
        in_order=True,
    )


def test_deleted_row_is_reported_with_sample_field_node_and_attempts(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes
) -> None:
    objects = _objects(b"there", b"gone")
    store.write("samples", dataset_id, objects)
    gone = _uuid(objects[1][0])
    cassandra.session.execute(
        f"DELETE FROM {tables}.samples WHERE dataset_id = {_uuid(dataset_id)} AND object_id = {gone}"
    )
    with _engine(store, dataset_id, objects) as engine:
        engine.start_epoch(0)
        assert engine.next_batch() is not None
        with pytest.raises(SampleMissing) as caught:
            engine.next_batch()
        assert caught.value.seq is not None
        engine.ack(caught.value.seq)
        (failed,) = {row[1:5] for row in ((*row[:2], tuple(row[2]), *row[3:]) for row in engine.failures())}
    message = str(caught.value)
    # Once from one replica, then three times from a quorum.
    for part in (f"sample {gone}", 'field "image"', "asked 4 times", "node 127."):
        assert part in message
    sample_id, fields, node, attempts = failed
    assert (sample_id, fields, attempts) == (objects[1][0], ("image",), 4)
    assert str(node).startswith("127.")


def test_lane_stats_time_the_answers(store: Store, dataset_id: bytes) -> None:
    objects = _objects(*[os.urandom(20_000) for _ in range(100)])
    store.write("samples", dataset_id, objects)
    with _engine(store, dataset_id, objects) as engine:
        engine.start_epoch(0)
        while engine.next_batch() is not None:
            pass
        lanes = engine.stats()["lane_stats"]
    assert lanes
    for lane in lanes:
        assert lane["answer"]["count"] == lane["answers"]
        assert lane["patience_ms"] is None or lane["patience_ms"] >= 20
        assert lane["shard"] is None
        assert [set(lane)] == documented("Lanes")
        assert [set(lane["answer"])] == documented("Stages")[1:]
    assert sum(lane["answers"] for lane in lanes) >= 100


def test_field_without_its_first_chunk_is_absent(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes
) -> None:
    objects = _objects(os.urandom(2 * CHUNK_BYTES))
    store.write("samples", dataset_id, objects)
    cassandra.session.execute(
        f"DELETE FROM {tables}.samples WHERE dataset_id = {_uuid(dataset_id)}"
        f" AND object_id = {_uuid(objects[0][0])} AND field = 'image' AND chunk = 0"
    )
    assert store.read("samples", dataset_id, [objects[0][0]]) == [None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [("SET xxh3 = 1", "checksum"), ("SET data = 0x00", "bytes of"), ("SET layout = 9", "upgrade")],
)
def test_damaged_row_is_corrupt_and_names_the_object(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes, change: str, reason: str
) -> None:
    objects = _objects(os.urandom(1000))
    store.write("samples", dataset_id, objects)
    cassandra.session.execute(
        f"UPDATE {tables}.samples {change} WHERE dataset_id = {_uuid(dataset_id)}"
        f" AND object_id = {_uuid(objects[0][0])} AND field = 'image' AND chunk = 0"
    )
    with pytest.raises(SampleCorrupt, match=reason) as caught:
        store.read("samples", dataset_id, [objects[0][0]])
    assert _uuid(objects[0][0]) in str(caught.value)
    assert "node 127." in str(caught.value)
    # One replica, and three times a quorum.
    assert store.counters()["damaged"] == 4


def test_missing_later_chunk_is_corrupt(
    store: Store, cassandra: CassandraCluster, tables: str, dataset_id: bytes
) -> None:
    objects = _objects(os.urandom(3 * CHUNK_BYTES))
    store.write("samples", dataset_id, objects)
    cassandra.session.execute(
        f"DELETE FROM {tables}.samples WHERE dataset_id = {_uuid(dataset_id)}"
        f" AND object_id = {_uuid(objects[0][0])} AND field = 'image' AND chunk = 1"
    )
    with pytest.raises(SampleCorrupt, match="2 chunks of 3 are there"):
        store.read("samples", dataset_id, [objects[0][0]])


def test_verify_finds_what_is_wrong(store: Store, dataset_id: bytes) -> None:
    objects = _objects(b"good", b"other")
    store.write("objects", dataset_id, objects)
    (first, _), (second, _) = objects
    absent = os.urandom(16)
    findings = store.verify(
        "objects",
        dataset_id,
        [
            (first, "image", 4, xxh3_64(b"good")),
            (second, "image", 4, xxh3_64(b"other")),
            (second, "image", 5, xxh3_64(b"wrong")),
            (absent, "image", 1, 1),
        ],
    )
    assert findings[0] is None
    assert "stored are 5 bytes, the manifest says 4" in (findings[1] or "")
    assert "checksum" in (findings[2] or "")
    assert _uuid(absent) in (findings[3] or "")


def test_scan_and_delete_keep_to_dataset_and_table(store: Store, dataset_id: bytes) -> None:
    other = os.urandom(16)
    objects = _objects(*[bytes([number]) for number in range(40)])
    store.write("samples", dataset_id, objects)
    store.write("samples", other, objects[:1])
    store.write("objects", dataset_id, objects[:2])
    ids = sorted(object_id for object_id, _ in objects)
    assert store.scan("samples", dataset_id) == ids
    store.delete("samples", dataset_id, ids[:39])
    assert store.scan("samples", dataset_id) == ids[39:]
    assert store.scan("samples", other) == [objects[0][0]]
    assert len(store.scan("objects", dataset_id)) == 2


def test_many_objects_are_written_within_bounds(store: Store, dataset_id: bytes) -> None:
    # 60 MB at once: more than a node of 512 MB heap takes from one client.
    objects = _objects(*[os.urandom(200_000) for _ in range(300)])
    store.write("samples", dataset_id, objects)
    read = store.read("samples", dataset_id, [object_id for object_id, _ in objects])
    assert read == [{"image": fields[0][1]} for _, fields in objects]
    assert store.counters()["retries"] == 0


def test_closed_store_says_so(open_store: OpenStore, dataset_id: bytes) -> None:
    store = open_store()
    store.ping()
    store.close()
    with pytest.raises(Exception, match="closed"):
        store.read("samples", dataset_id, [os.urandom(16)])


def _opening_fails(config: Mapping[str, object]) -> tuple[Exception, float]:
    started = time.monotonic()
    with pytest.raises((ConfigError, StoreUnavailable)) as caught:
        Store.open(json.dumps(config))
    return caught.value, time.monotonic() - started


def test_open_where_nothing_listens_fails_fast(cassandra: CassandraCluster, tables: str) -> None:
    config = cassandra.store_config(tables) | {"contact_points": ["127.0.0.1:1"]}
    error, seconds = _opening_fails(config)
    assert "nothing listens on 127.0.0.1:1" in str(error)
    assert seconds < 15


def test_open_where_nobody_answers_fails_within_five_seconds(silent_port: int) -> None:
    config = {"kind": "cql", "contact_points": [f"127.0.0.1:{silent_port}"], "local_dc": "d", "keyspace": "ps_x"}
    error, seconds = _opening_fails(config)
    assert "did not answer" in str(error)
    assert seconds < 15


def test_open_with_unknown_keyspace_or_data_centre_says_which(cassandra: CassandraCluster, tables: str) -> None:
    config = cassandra.store_config(tables)
    error, _ = _opening_fails(config | {"keyspace": "ps_unknown"})
    assert "ps_unknown" in str(error)
    error, _ = _opening_fails(config | {"local_dc": "atlantis"})
    assert "atlantis" in str(error)
    assert str(config["local_dc"]) in str(error)


@pytest.mark.parametrize("lanes", [0, 65])
def test_open_with_a_number_of_lanes_that_cannot_work_says_what_can(
    cassandra: CassandraCluster, tables: str, lanes: int
) -> None:
    error, _ = _opening_fails(cassandra.store_config(tables) | {"lanes": lanes})
    assert isinstance(error, ConfigError)
    assert f"lanes is {lanes}" in str(error)
    assert "1 to 64" in str(error)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
