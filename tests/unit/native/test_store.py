"""The stores that need no server: LMDB and memory give the same answers."""

import array
import json
import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock._errors import ConfigError, CorePanicked, EngineClosed, SampleCorrupt, SampleMissing, StoreUnavailable
from penstock._native import Store, xxh3_64

MakeStore = Callable[[], Store]


@pytest.fixture(params=["lmdb", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Opens stores that share their content."""
    configs = {"lmdb": {"path": str(tmp_path / "store")}, "memory": {"name": uuid.uuid4().hex}}
    config = json.dumps({"kind": request.param} | configs[request.param])
    return lambda: Store.open(config)


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()


@pytest.fixture
def dataset_id() -> bytes:
    return os.urandom(16)


def test_write_then_read_gives_the_same_bytes(store: Store, dataset_id: bytes) -> None:
    object_id, image, mask = os.urandom(16), os.urandom(3_000_000), b""
    store.write("samples", dataset_id, [(object_id, [("mask", mask), ("image", image)])])
    assert store.read("samples", dataset_id, [object_id]) == [{"image": image, "mask": mask}]
    assert store.read("samples", dataset_id, [object_id], ["mask"]) == [{"mask": mask}]


def test_read_gives_fields_in_the_order_asked_for(store: Store, dataset_id: bytes) -> None:
    object_id = os.urandom(16)
    store.write("samples", dataset_id, [(object_id, [("a", b"1"), ("b", b"2")])])
    record = store.read("samples", dataset_id, [object_id], ["b", "a"])[0]
    assert list(record or ()) == ["b", "a"]


def test_absent_object_field_and_dataset_are_none(store: Store, dataset_id: bytes) -> None:
    object_id = os.urandom(16)
    store.write("samples", dataset_id, [(object_id, [("image", b"x")])])
    assert store.read("samples", dataset_id, [os.urandom(16), object_id]) == [None, {"image": b"x"}]
    assert store.read("samples", dataset_id, [object_id], ["image", "mask"]) == [None]
    assert store.read("samples", os.urandom(16), [object_id]) == [None]
    assert store.read("objects", dataset_id, [object_id]) == [None]
    assert store.scan("samples", os.urandom(16)) == []


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        array.array("q", [1]),
        np.arange(6, dtype=np.uint16).reshape(2, 3),
        np.float64(1.5),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_any_contiguous_buffer_is_taken(store: Store, dataset_id: bytes, buffer: bytearray) -> None:
    object_id = os.urandom(16)
    store.write("samples", dataset_id, [(object_id, [("f", buffer)])])
    assert store.read("samples", dataset_id, [object_id]) == [{"f": memoryview(buffer).tobytes()}]


def test_buffer_changed_after_the_write_changes_nothing(store: Store, dataset_id: bytes) -> None:
    object_id, data = os.urandom(16), bytearray(b"before")
    store.write("samples", dataset_id, [(object_id, [("f", data)])])
    data[:] = b"after!"
    assert store.read("samples", dataset_id, [object_id]) == [{"f": b"before"}]


def test_writing_again_changes_nothing(store: Store, dataset_id: bytes) -> None:
    objects = [(os.urandom(16), [("f", b"same")])]
    store.write("samples", dataset_id, objects)
    store.write("samples", dataset_id, objects)
    assert store.scan("samples", dataset_id) == [objects[0][0]]


def test_scan_is_sorted_and_delete_removes_all_fields(store: Store, dataset_id: bytes) -> None:
    ids = sorted(os.urandom(16) for _ in range(50))
    store.write("samples", dataset_id, [(key, [("a", b"1"), ("b", b"2")]) for key in reversed(ids)])
    store.write("objects", dataset_id, [(ids[0], [("data", b"own")])])
    assert store.scan("samples", dataset_id) == ids
    store.delete("samples", dataset_id, [*ids[:49], os.urandom(16)])
    assert store.scan("samples", dataset_id) == ids[49:]
    assert store.read("samples", dataset_id, ids[:1], ["b"]) == [None]
    assert store.scan("objects", dataset_id) == ids[:1]


def test_verify_says_what_is_wrong(store: Store, dataset_id: bytes) -> None:
    good, other = os.urandom(16), os.urandom(16)
    store.write("samples", dataset_id, [(good, [("a", b"one"), ("b", b"two")]), (other, [("a", b"x")])])
    findings = store.verify(
        "samples",
        dataset_id,
        [
            (good, "a", 3, xxh3_64(b"one")),
            (good, "b", 3, xxh3_64(b"owt")),
            (good, "c", 3, 0),
            (other, "a", 2, xxh3_64(b"x")),
        ],
    )
    assert findings[0] is None
    assert "checksum" in (findings[1] or "")
    assert 'no field "c"' in (findings[2] or "")
    assert "stored are 1 bytes, the manifest says 2" in (findings[3] or "")
    assert str(uuid.UUID(bytes=good)) in (findings[1] or "")


def test_stores_of_one_place_share_their_content(make_store: MakeStore, dataset_id: bytes) -> None:
    object_id = os.urandom(16)
    first, second = make_store(), make_store()
    first.write("samples", dataset_id, [(object_id, [("f", b"x")])])
    first.close()
    assert second.read("samples", dataset_id, [object_id]) == [{"f": b"x"}]


def test_closed_store_raises_and_closes_twice(store: Store, dataset_id: bytes) -> None:
    with store as same:
        assert same is store
        store.ping()
    store.close()
    with pytest.raises(EngineClosed, match="closed"):
        store.ping()
    with pytest.raises(EngineClosed):
        store.read("samples", dataset_id, [os.urandom(16)])


def test_misuse_is_refused_before_anything_is_written(store: Store, dataset_id: bytes) -> None:
    fine = (os.urandom(16), [("f", b"x")])
    with pytest.raises(ValueError, match="'samples' or 'objects'"):
        store.write("blobs", dataset_id, [fine])
    with pytest.raises(ValueError, match="dataset_id has to be 16 bytes"):
        store.write("samples", b"short", [fine])
    with pytest.raises(ValueError, match="object_id has to be 16 bytes"):
        store.read("samples", dataset_id, [b"short"])
    with pytest.raises(ValueError, match="no field name"):
        store.write("samples", dataset_id, [fine, (os.urandom(16), [('"; drop', b"x")])])
    with pytest.raises(ValueError, match="twice"):
        store.write("samples", dataset_id, [fine, (os.urandom(16), [("f", b"x"), ("f", b"y")])])
    with pytest.raises(ValueError, match="no fields"):
        store.write("samples", dataset_id, [fine, (os.urandom(16), [])])
    with pytest.raises(ValueError, match='fields has "f" twice: name each field once'):
        store.read("samples", dataset_id, [fine[0]], ["f", "g", "f"])
    with pytest.raises(ValueError, match="fields is empty"):
        store.read("samples", dataset_id, [fine[0]], [])
    with pytest.raises(TypeError, match="not contiguous"):
        store.write("samples", dataset_id, [(fine[0], [("f", np.zeros((4, 4))[:, 1])])])
    with pytest.raises(TypeError):
        store.write("samples", dataset_id, [(fine[0], [("f", "text")])])  # type: ignore[list-item]  # misuse
    assert store.scan("samples", dataset_id) == []


def test_store_is_not_pickled(store: Store) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(store)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot be read"),
        ('{"kind":"tape"}', "tape"),
        ('{"kind":"lmdb"}', "path"),
        ('{"kind":"lmdb","path":"relative"}', "has to be absolute"),
        ('{"kind":"lmdb","path":"/nowhere/at/all","is_read_only":true}', "no store folder /nowhere/at/all"),
        ('{"kind":"memory","name":"x","color":1}', "color"),
        ('{"kind":"cql","contact_points":[],"local_dc":"d","keyspace":"k"}', "names no node"),
        ('{"kind":"cql","contact_points":["127.0.0.1:1"],"local_dc":"d","keyspace":"K;"}', "keyspace has to be"),
        (
            '{"kind":"cql","contact_points":["127.0.0.1:1"],"local_dc":"d","keyspace":"k","username":"u"}',
            "belong together",
        ),
    ],
)
def test_wrong_configuration_says_what_to_change(config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Store.open(config)


def test_unreachable_cluster_says_that_nothing_listens() -> None:
    config = {"kind": "cql", "contact_points": ["127.0.0.1:1"], "local_dc": "d", "keyspace": "k"}
    with pytest.raises(StoreUnavailable, match=r"nothing listens on 127\.0\.0\.1:1"):
        Store.open(json.dumps(config))


def test_unknown_name_of_a_cluster_is_said() -> None:
    config = {"kind": "cql", "contact_points": ["no-such-host.invalid"], "local_dc": "d", "keyspace": "k"}
    with pytest.raises(StoreUnavailable, match=r"no address was found for no-such-host\.invalid:9042"):
        Store.open(json.dumps(config))


def test_fault_plan_fails_the_same_reads_every_time() -> None:
    name, dataset_id = uuid.uuid4().hex, os.urandom(16)
    ids = [index.to_bytes(16) for index in range(200)]
    with Store.open(json.dumps({"kind": "memory", "name": name})) as healthy:
        healthy.write("samples", dataset_id, [(key, [("f", b"x")]) for key in ids])

    def failures(**plan: object) -> list[int]:
        bad = []
        with Store.open(json.dumps({"kind": "memory", "name": name, "faults": plan})) as store:
            for index, key in enumerate(ids):
                try:
                    if store.read("samples", dataset_id, [key]) == [None]:
                        bad.append(index)
                except (StoreUnavailable, SampleMissing, SampleCorrupt):
                    bad.append(index)
            assert store.counters()["faults"] == len(bad)
        return bad

    plan = {"seed": 3, "unavailable_share": 0.1, "missing_share": 0.1, "corrupt_share": 0.1, "delay_ms": [0, 0.1]}
    first = failures(**plan)
    assert 20 < len(first) < 120
    assert failures(**plan) == first
    assert failures(**(plan | {"seed": 4})) != first
    assert failures(**(plan | {"faulty_reads": 0})) == []


def test_damage_is_counted_apart_from_other_faults() -> None:
    dataset_id, ids = os.urandom(16), [index.to_bytes(16) for index in range(100)]
    plan = {"seed": 5, "unavailable_share": 0.2, "missing_share": 0.2, "corrupt_share": 0.2}
    damaged = 0
    with Store.open(json.dumps({"kind": "memory", "name": uuid.uuid4().hex, "faults": plan})) as store:
        store.write("samples", dataset_id, [(key, [("f", b"x")]) for key in ids])
        for key in ids:
            try:
                store.read("samples", dataset_id, [key])
            except SampleCorrupt:
                damaged += 1
            except StoreUnavailable:
                pass
        counters = store.counters()
    assert 0 < damaged == counters["damaged"] < counters["faults"]


def test_bug_in_the_core_is_an_ordinary_exception() -> None:
    config = {"kind": "memory", "name": uuid.uuid4().hex, "faults": {"panic_share": 1.0, "faulty_reads": 1}}
    dataset_id, object_id = os.urandom(16), os.urandom(16)
    with Store.open(json.dumps(config)) as store:
        store.write("samples", dataset_id, [(object_id, [("f", b"x")])])
        with pytest.raises(CorePanicked, match="the fault plan says so"):
            store.read("samples", dataset_id, [object_id])
        assert store.read("samples", dataset_id, [object_id]) == [{"f": b"x"}]
