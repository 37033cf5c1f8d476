"""A loader belongs to its process: in a fork it raises at once, and a new one works there."""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from unit.sdk.http_front import served

from penstock import Client
from penstock import _errors as errors
from penstock._engine import _pool
from penstock._shares import shares


def in_fork(check: Callable[[], None]) -> None:
    """Run `check` in a forked child and fail with what it printed when it fails or hangs."""
    forked(check)()


def forked(check: Callable[[], None]) -> Callable[[], None]:
    """Begin to run `check` in a forked child; call what is returned to wait for it."""
    reading, writing = os.pipe()
    # The threads of this process are what the test is about.
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writing)

    def wait() -> None:
        with os.fdopen(reading, "rb") as output:
            text = output.read().decode()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, text

    return wait


pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="fork"),
]


def expect_forked(use: Callable[[], object]) -> None:
    with pytest.raises(errors.ForkedProcess, match="make the loader inside the child"):
        use()


@pytest.mark.parametrize("is_running", [False, True])
def test_loader_of_the_parent_raises_in_the_child(training: Any, is_running: bool) -> None:
    with training.api.client().loader("demo", split="train", batch_size=8, output="numpy", telemetry=False) as loader:
        running = iter(loader)
        if is_running:
            next(running)

        def check() -> None:
            expect_forked(lambda: next(running))
            expect_forked(lambda: next(iter(loader)))
            expect_forked(lambda: len(loader))
            expect_forked(lambda: loader.set_epoch(0))
            expect_forked(loader.stats)
            loader.close()

        in_fork(check)
        assert sum(1 for _ in running) == (12 if is_running else 13)


def test_new_loader_in_the_child_works(lmdb_training: Any) -> None:
    options: dict[str, Any] = {"split": "train", "batch_size": 8, "output": "numpy", "telemetry": False}
    lmdb_training.api.answer("POST", "/loaders/resolve", lmdb_training.plan())
    with lmdb_training.api.client().loader("demo", **options) as loader:
        next(iter(loader))

        def check() -> None:
            with lmdb_training.api.client().loader("demo", **options) as own:
                assert sum(len(batch["ids"]) for batch in own) == 101

        in_fork(check)
        assert sum(len(batch["ids"]) for batch in loader) == 101


def test_torch_worker_processes_get_the_error(training: Any) -> None:
    import torch

    class Wrapped(torch.utils.data.IterableDataset[Any]):
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __iter__(self) -> Any:
            return iter(self.loader)

    with training.api.client().loader("demo", split="train", batch_size=8, telemetry=False) as loader:
        workers = torch.utils.data.DataLoader(
            Wrapped(loader), batch_size=None, num_workers=1, multiprocessing_context="fork"
        )
        with pytest.raises(errors.ForkedProcess, match="torch DataLoader"):
            next(iter(workers))


def test_a_lock_held_at_the_fork_hangs_no_use_of_the_loader(training: Any) -> None:
    with training.api.client().loader("demo", split="train", batch_size=8, output="numpy", telemetry=False) as loader:
        next(iter(loader))
        # As another thread might hold it at that moment.
        with loader._meter._lock:
            in_fork(lambda: expect_forked(loader.stats))


def test_locks_that_another_thread_holds_at_the_fork_hang_no_new_loader(lmdb_training: Any) -> None:
    options: dict[str, Any] = {"split": "train", "batch_size": 8, "output": "numpy", "telemetry": False}
    lmdb_training.api.answer("POST", "/loaders/resolve", lmdb_training.plan())
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with _pool._lock, shares._lock:
            is_held.set()
            may_go.wait(60)

    def check() -> None:
        with lmdb_training.api.client().loader("demo", **options) as own:
            assert sum(len(batch["ids"]) for batch in own) == 101

    with lmdb_training.api.client().loader("demo", **options) as loader:
        next(iter(loader))
        holder = threading.Thread(target=hold)
        holder.start()
        try:
            assert is_held.wait(10)
            in_fork(check)
        finally:
            may_go.set()
            holder.join()


def test_a_client_used_before_the_fork_has_its_own_connections_in_each_child(training: Any) -> None:
    def versioned(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        # Answers differ, so that one that reaches the wrong process is seen.
        number = int(asked["dataset"].partition("@")[2])
        return httpx.Response(200, json=training.plan(version={"number": number, "digest": "d"}))

    training.api.serve("POST", "/loaders/resolve", versioned)
    with served(training.api) as address, Client(address, "pst_x") as client:

        def resolve(first: int) -> None:
            for number in range(first, first + 50):
                assert client.resolve(f"demo@{number}", split="train").version.number == number

        resolve(1)
        children = [forked(lambda first=100 * child: resolve(first)) for child in range(1, 5)]  # type: ignore[misc]
        resolve(50)
        for wait in children:
            wait()
        # Nothing that a child did has closed the connection of this process.
        resolve(1)
