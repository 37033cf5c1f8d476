"""Stores, forks and signals. Each case runs in a process of its own: a fork of the test runner proves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import faulthandler, json, os, signal, sys, threading, time
faulthandler.enable()
from penstock._errors import CorePanicked, ForkedProcess
from penstock._native import Store
kind, path = sys.argv[1:3]
config = json.dumps({"kind": kind, "path": path} if kind == "lmdb" else {"kind": kind, "name": "x"})
DATASET, OBJECT = bytes(16), bytes(range(16))

def in_child(job):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            job()
            code = 0
        except BaseException as error:
            print("child:", repr(error), flush=True)
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    sys.exit("the child hangs")
"""

INHERITED = """
store = Store.open(config)
store.write("samples", DATASET, [(OBJECT, [("f", b"x")])])
def child():
    started = time.monotonic()
    for call in (store.ping, lambda: store.read("samples", DATASET, [OBJECT])):
        try:
            call()
        except ForkedProcess as error:
            assert "make a new one in the child" in str(error), error
        else:
            raise AssertionError("an inherited store worked")
    store.close()
    assert time.monotonic() - started < 3
in_child(child)
assert store.read("samples", DATASET, [OBJECT]) == [{"f": b"x"}]
"""

FORGOTTEN = """
def open_files():
    places = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(place).startswith(path) for place in places)

store = Store.open(config)
store.write("samples", DATASET, [(OBJECT, [("f", b"x")])])
before = open_files()
assert before > 0
def child():
    # The last handle goes, and nothing happens: all that is behind it belongs to the parent's threads.
    del globals()["store"]
    assert open_files() == before, open_files()
in_child(child)
assert store.read("samples", DATASET, [OBJECT]) == [{"f": b"x"}]
# In the process that made it the same closes the files.
del store
assert open_files() == 0, open_files()
"""

NEW_IN_CHILD = """
store = Store.open(config)
store.write("samples", DATASET, [(OBJECT, [("f", b"x" * 100_000)])])
stop = threading.Event()
def read_on():
    while not stop.is_set():
        store.read("samples", DATASET, [OBJECT] * 8)
threads = [threading.Thread(target=read_on) for _ in range(3)]
for thread in threads:
    thread.start()
def child():
    mine = Store.open(config)
    assert mine.read("samples", DATASET, [OBJECT]) == [{"f": b"x" * 100_000}]
    mine.write("samples", DATASET, [(os.getpid().to_bytes(16), [("f", b"child")])])
    again = Store.open(config)
    assert again.read("samples", DATASET, [os.getpid().to_bytes(16)]) == [{"f": b"child"}]
    mine.close()
    again.close()
    # What the parent has open is still in the way after the child has closed its own.
    with Store.open(config) as once_more:
        assert once_more.read("samples", DATASET, [OBJECT]) == [{"f": b"x" * 100_000}]
for _ in range(10):
    in_child(child)
stop.set()
for thread in threads:
    thread.join()
assert len(store.scan("samples", DATASET)) == (11 if kind == "lmdb" else 1)
"""

INTERRUPTED = """
slow = json.dumps({"kind": "memory", "name": "x", "faults": {"delay_ms": [30_000, 30_000]}})
store = Store.open(slow)
store.write("samples", DATASET, [(OBJECT, [("f", b"x")])])
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    store.read("samples", DATASET, [OBJECT])
except KeyboardInterrupt:
    assert time.monotonic() - started < 6
else:
    raise AssertionError("the read ended by itself")
"""

EXIT_IN_FLIGHT = """
slow = json.dumps({"kind": "memory", "name": "x", "faults": {"delay_ms": [30_000, 30_000]}})
store = Store.open(slow)
store.write("samples", DATASET, [(OBJECT, [("f", b"x")])])
for _ in range(20):
    threading.Thread(target=lambda: store.read("samples", DATASET, [OBJECT] * 30), daemon=True).start()
time.sleep(0.3)
"""

THREADS_RUN_ON = """
slow = json.dumps({"kind": "memory", "name": "x", "faults": {"delay_ms": [500, 500]}})
store = Store.open(slow)
store.write("samples", DATASET, [(OBJECT, [("f", b"x")])])
reader = threading.Thread(target=lambda: store.read("samples", DATASET, [OBJECT]))
reader.start()
count = 0
while reader.is_alive():
    count += 1
assert count > 1000, count
"""


def _run(script: str, kind: str, path: Path) -> None:
    argv = [sys.executable, "-c", PRELUDE + script, kind, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["lmdb", "memory"])
def test_inherited_store_raises_at_once_in_a_forked_child(kind: str, tmp_path: Path) -> None:
    _run(INHERITED, kind, tmp_path)


def test_inherited_store_that_a_forked_child_forgets_is_left_alone(tmp_path: Path) -> None:
    _run(FORGOTTEN, "lmdb", tmp_path)


@pytest.mark.parametrize("kind", ["lmdb", "memory"])
def test_new_store_in_a_forked_child_works_while_the_parent_reads(kind: str, tmp_path: Path) -> None:
    _run(NEW_IN_CHILD, kind, tmp_path)


def test_interrupt_ends_a_long_call(tmp_path: Path) -> None:
    _run(INTERRUPTED, "memory", tmp_path)


def test_interpreter_exits_with_reads_under_way(tmp_path: Path) -> None:
    _run(EXIT_IN_FLIGHT, "memory", tmp_path)


def test_other_threads_run_while_a_call_waits(tmp_path: Path) -> None:
    _run(THREADS_RUN_ON, "memory", tmp_path)
