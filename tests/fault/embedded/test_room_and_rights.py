"""E2 without damage: no room in the map or on the disk, no right to write."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fault.embedded import far_folder
from fault.embedded.objects import DATASET, fields_of, id_of, object_of, open_lmdb

from penstock._errors import ConfigError, StoreFull, StoreRefused, StoreUnavailable

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and other users need root")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own on `folder`."""
    done = subprocess.run(["mount", *options, str(folder)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_map_grows_by_itself_inside_of_one_large_write(tmp_path: Path) -> None:
    objects = [object_of(number) for number in range(60)]
    with open_lmdb(tmp_path, first_map_bytes=1 << 16) as store:
        store.write("samples", DATASET, objects)
        assert store.read("samples", DATASET, [id_of(number) for number in range(60)]) == [
            fields_of(number) for number in range(60)
        ]


def test_map_that_the_machine_refuses_to_grow_is_an_error_and_the_store_goes_on(tmp_path: Path) -> None:
    # The limit on address space stands for the largest map: without it LMDB would go on to 64 TiB.
    program = """
import json, resource, sys
from penstock._errors import PenstockError
from penstock._native import Store
store = Store.open(json.dumps({"kind": "lmdb", "path": sys.argv[1], "first_map_bytes": 1 << 16}))
store.write("samples", bytes(16), [(b"a" * 16, [("f", b"small")])])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
written, refused = 0, None
while refused is None and written < 400:
    try:
        store.write("samples", bytes(16), [(written.to_bytes(16), [("f", bytes(4 << 20))])])
        written += 1
    except PenstockError as error:
        refused = type(error).__name__
print(json.dumps([refused, written]))
assert store.read("samples", bytes(16), [b"a" * 16]) == [{"f": b"small"}]
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.write("samples", bytes(16), [(written.to_bytes(16), [("f", bytes(4 << 20))])])
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused, written = json.loads(done.stdout)
    assert refused in ("StoreUnavailable", "StoreFull"), done.stdout
    with open_lmdb(tmp_path) as store:
        assert len(store.scan("samples", bytes(16))) == written + 2


@needs_root
def test_full_disk_is_reported_loses_nothing_and_goes_on_after_room_was_made(tmp_path: Path) -> None:
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=24m", "tmpfs"):
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(8 << 20))
        written = 0
        with open_lmdb(tmp_path) as store:
            with suppress(StoreFull):
                for written in range(10_000):
                    store.write("samples", DATASET, [object_of(written)])
            assert 20 < written < 9_999
            # Full again and again does no harm, neither to what is there nor to those who read.
            for _ in range(5):
                with pytest.raises(StoreFull, match="free some"):
                    store.write("samples", DATASET, [(b"b" * 16, [("f", os.urandom(12 << 20))])])
            ids = [id_of(number) for number in range(written)]
            assert store.read("samples", DATASET, ids) == [fields_of(number) for number in range(written)]
            ballast.unlink()
            store.write("samples", DATASET, [object_of(written)])
        with open_lmdb(tmp_path, is_read_only=True) as store:
            assert len(store.scan("samples", DATASET)) == written + 1


@needs_root
def test_disk_without_room_for_a_new_dataset_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=1m", "tmpfs"), open_lmdb(tmp_path) as store:
        (tmp_path / "ballast").write_bytes(bytes(900 << 10))
        with pytest.raises(StoreFull, match="free some"):
            store.write("samples", DATASET, [object_of(1)])


def written_and_empty(tmp_path: Path) -> tuple[Path, Path]:
    """A store of 20 objects, and a folder to mount something on."""
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    with open_lmdb(source) as store:
        store.write("samples", DATASET, [object_of(number) for number in range(20)])
    return source, target


@needs_root
def test_read_only_file_system_can_be_read_and_refuses_to_be_written(tmp_path: Path) -> None:
    source, target = written_and_empty(tmp_path)
    with mounted(target, "--bind", str(source)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(target)], check=True)
        with pytest.raises(ConfigError, match="cannot be written to"):
            open_lmdb(target)
        with open_lmdb(target, is_read_only=True) as store:
            assert store.read("samples", DATASET, [id_of(4)]) == [fields_of(4)]
            assert len(store.scan("samples", DATASET)) == 20
            with pytest.raises(ValueError, match="reading only"):
                store.write("samples", DATASET, [object_of(1)])


@needs_root
def test_read_only_medium_without_room_and_locks_can_be_read(tmp_path: Path) -> None:
    source, target = written_and_empty(tmp_path)
    with mounted(target, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        # As on a squashfs or a CD, whose images hold no byte more than their files.
        folder = target / DATASET.hex()
        folder.mkdir()
        shutil.copy(source / DATASET.hex() / "data.mdb", folder)
        with suppress(OSError):
            (target / "ballast").write_bytes(bytes(8 << 20))
        subprocess.run(["mount", "-o", "remount,ro", str(target)], check=True)
        with open_lmdb(target, is_read_only=True) as store:
            assert store.read("samples", DATASET, [id_of(4)]) == [fields_of(4)]


@needs_root
def test_dataset_in_two_places_is_opened_once_by_a_process(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    with open_lmdb(source) as store:
        store.write("samples", DATASET, [object_of(1)])
        with mounted(target, "--bind", str(source)), open_lmdb(target) as same:
            same.write("samples", DATASET, [object_of(2)])
            places = [os.path.realpath(place) for place in Path("/proc/self/fd").iterdir()]
            # Closing one of two would release the locks of both.
            assert [place for place in places if place.endswith("lock.mdb")] == [f"{source}/{DATASET.hex()}/lock.mdb"]
        store.write("samples", DATASET, [object_of(3)])
        assert len(store.scan("samples", DATASET)) == 3


@needs_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no FUSE here")
def test_dataset_whose_folder_is_on_a_network_is_refused(tmp_path: Path) -> None:
    store_folder, far = tmp_path / "store", tmp_path / "far"
    far.mkdir()
    argv = [sys.executable, far_folder.__file__, str(far)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server, open_lmdb(store_folder) as store:
        assert server.stdout is not None
        if server.stdout.readline() != "mounted\n":
            pytest.skip("no FUSE mount here")
        try:
            (store_folder / DATASET.hex()).symlink_to(far)
            with pytest.raises(StoreRefused, match="is on sshfs, a network file system"):
                store.write("samples", DATASET, [object_of(1)])
        finally:
            server.kill()
            subprocess.run(["umount", "-l", str(far)], check=True)


@needs_root
def test_reader_without_the_right_to_write_the_lock_file_is_told_what_to_check() -> None:
    program = """
import json, os, sys
from penstock._errors import ConfigError, StoreRefused
from penstock._native import Store
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    Store.open(json.dumps({"kind": "lmdb", "path": sys.argv[1]}))
except ConfigError as error:
    print("writer:", error)
store = Store.open(json.dumps({"kind": "lmdb", "path": sys.argv[1], "is_read_only": True}))
try:
    print("reader:", len(store.read("samples", bytes.fromhex(sys.argv[2]), [bytes.fromhex(sys.argv[3])])[0]))
except StoreRefused as error:
    print("reader:", error)
"""
    # Not in pytest's own folder, which nobody else may look into.
    with tempfile.TemporaryDirectory() as folder:
        with open_lmdb(folder) as store:
            store.write("samples", DATASET, [object_of(4)])
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        argv = [sys.executable, "-c", program, folder, DATASET.hex(), id_of(4).hex()]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    writer, reader = done.stdout.splitlines()
    assert "check its owner and rights" in writer
    assert "check the folder's owner and rights" in reader


@needs_root
def test_folder_that_lost_its_disk_is_an_error_of_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        store = open_lmdb(folder)
        store.ping()
    folder.rmdir()
    with pytest.raises(StoreUnavailable, match="looking into the store's folder"):
        store.ping()
