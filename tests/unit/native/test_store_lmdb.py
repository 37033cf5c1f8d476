"""What only LMDB can get wrong: folders, processes, growth, damage."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock._errors import ConfigError, SampleCorrupt, StoreFull
from penstock._native import Store

CHILD = """
import json, os, sys
from penstock._native import Store
path, dataset, role = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3]
config = {"kind": "lmdb", "path": path, "is_read_only": role == "reader", "first_map_bytes": 1 << 16}
store = Store.open(json.dumps(config))
if role == "writer":
    for number in range(200):
        store.write("samples", dataset, [(number.to_bytes(16), [("f", bytes([number]) * 20_000)])])
        print(number, flush=True)
else:
    seen = 0
    while seen < 200:
        record = store.read("samples", dataset, [seen.to_bytes(16)])[0]
        if record is not None:
            assert record["f"] == bytes([seen]) * 20_000
            seen += 1
    print("done", flush=True)
"""


def _open(path: Path, *, is_read_only: bool = False) -> Store:
    return Store.open(json.dumps({"kind": "lmdb", "path": str(path), "is_read_only": is_read_only}))


def _child(path: Path, dataset_id: bytes, role: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", CHILD, str(path), dataset_id.hex(), role]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def _output(child: subprocess.Popen[str]) -> str:
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0, output
    return output


def test_each_dataset_has_a_folder_of_its_own(tmp_path: Path) -> None:
    store, dataset_id = _open(tmp_path), os.urandom(16)
    assert list(tmp_path.iterdir()) == []
    store.write("samples", dataset_id, [(os.urandom(16), [("f", b"x")])])
    assert [folder.name for folder in tmp_path.iterdir()] == [dataset_id.hex()]
    assert {file.name for file in (tmp_path / dataset_id.hex()).iterdir()} == {"data.mdb", "lock.mdb"}


def test_reader_process_sees_what_another_process_writes(tmp_path: Path) -> None:
    dataset_id = os.urandom(16)
    readers = [_child(tmp_path, dataset_id, "reader") for _ in range(2)]
    # The map starts at 64 KiB: the readers have to follow it while it doubles again and again.
    assert _output(_child(tmp_path, dataset_id, "writer")).endswith("199\n")
    for reader in readers:
        assert _output(reader) == "done\n"


def test_killed_writer_loses_nothing_it_has_acknowledged(tmp_path: Path) -> None:
    dataset_id = os.urandom(16)
    writer = _child(tmp_path, dataset_id, "writer")
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    rest, _ = writer.communicate(timeout=60)
    acknowledged += [int(line) for line in rest.splitlines()]
    with _open(tmp_path, is_read_only=True) as store:
        records = store.read("samples", dataset_id, [number.to_bytes(16) for number in acknowledged])
    assert [record and record["f"] for record in records] == [bytes([number]) * 20_000 for number in acknowledged]


def test_content_is_found_again_by_a_new_process_after_all_have_closed(tmp_path: Path) -> None:
    dataset_id = os.urandom(16)
    _output(_child(tmp_path, dataset_id, "writer"))
    assert _output(_child(tmp_path, dataset_id, "reader")) == "done\n"


def test_read_only_store_refuses_to_write_and_makes_no_file(tmp_path: Path) -> None:
    store = _open(tmp_path, is_read_only=True)
    with pytest.raises(ValueError, match="for reading only"):
        store.write("samples", os.urandom(16), [(os.urandom(16), [("f", b"x")])])
    with pytest.raises(ValueError, match="for reading only"):
        store.delete("samples", os.urandom(16), [os.urandom(16)])
    assert list(tmp_path.iterdir()) == []


def test_read_only_and_writing_stores_live_in_one_process(tmp_path: Path) -> None:
    dataset_id, object_id = os.urandom(16), os.urandom(16)
    reader = _open(tmp_path, is_read_only=True)
    assert reader.read("samples", dataset_id, [object_id]) == [None]
    writer = _open(tmp_path)
    writer.write("samples", dataset_id, [(object_id, [("f", b"x")])])
    assert reader.read("samples", dataset_id, [object_id]) == [{"f": b"x"}]


def test_map_grows_under_two_stores_of_one_process(tmp_path: Path) -> None:
    config = json.dumps({"kind": "lmdb", "path": str(tmp_path), "first_map_bytes": 1 << 16})
    writer, reader, dataset_id = Store.open(config), Store.open(config), os.urandom(16)
    block = os.urandom(3 << 20)
    ids = [os.urandom(16) for _ in range(8)]
    for object_id in ids:
        writer.write("samples", dataset_id, [(object_id, [("f", block)])])
        assert reader.read("samples", dataset_id, [object_id]) == [{"f": block}]
    assert len(reader.scan("samples", dataset_id)) == 8


def test_threads_write_and_read_at_the_same_time(tmp_path: Path) -> None:
    store, dataset_id = _open(tmp_path), os.urandom(16)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 30):
                key, data = number.to_bytes(16), bytes([number]) * 1000
                store.write("samples", dataset_id, [(key, [("f", data)])])
                assert store.read("samples", dataset_id, [key]) == [{"f": data}]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 120, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.scan("samples", dataset_id)) == 120


def test_flipped_byte_in_the_file_is_corrupt_and_names_the_object(tmp_path: Path) -> None:
    dataset_id, object_id = os.urandom(16), bytes(range(16))
    with _open(tmp_path) as store:
        store.write("samples", dataset_id, [(object_id, [("image", b"needle" * 5000)])])
    file = tmp_path / dataset_id.hex() / "data.mdb"
    content = bytearray(file.read_bytes())
    place = content.index(b"needleneedle") + 100
    content[place] ^= 1
    file.write_bytes(content)
    with _open(tmp_path) as store:
        with pytest.raises(SampleCorrupt, match="checksum") as caught:
            store.read("samples", dataset_id, [object_id])
        assert store.counters()["damaged"] == 1
    assert "00010203-0405-0607-0809-0a0b0c0d0e0f" in str(caught.value)
    assert '"image"' in str(caught.value)


def test_file_that_is_no_database_is_an_error_with_its_folder(tmp_path: Path) -> None:
    dataset_id = os.urandom(16)
    (tmp_path / dataset_id.hex()).mkdir()
    (tmp_path / dataset_id.hex() / "data.mdb").write_bytes(b"no database at all" * 1000)
    with _open(tmp_path) as store:
        with pytest.raises(Exception, match=str(tmp_path)):
            store.read("samples", dataset_id, [os.urandom(16)])
        with pytest.raises(Exception, match=str(tmp_path)):
            store.scan("samples", dataset_id)
        assert store.counters()["damaged"] == 2


def test_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written to"):
        _open(tmp_path / "file" / "store")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk_is_reported_and_goes_on_after_room_was_made(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    try:
        dataset_id = os.urandom(16)
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(12 << 20))
        with _open(tmp_path) as store:
            store.write("samples", dataset_id, [(b"a" * 16, [("f", b"small")])])
            with pytest.raises(StoreFull, match="free some"):
                store.write("samples", dataset_id, [(b"b" * 16, [("f", os.urandom(16 << 20))])])
            assert store.read("samples", dataset_id, [b"a" * 16, b"b" * 16]) == [{"f": b"small"}, None]
            ballast.unlink()
            store.write("samples", dataset_id, [(b"b" * 16, [("f", bytes(8 << 20))])])
            assert store.scan("samples", dataset_id) == [b"a" * 16, b"b" * 16]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
