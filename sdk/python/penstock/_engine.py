"""The native engine and its stores: who owns them, and for how long."""

import dataclasses
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._errors import ConfigError, EngineClosed, ForkedProcess, StateError
from penstock._failures import SampleFailure
from penstock._members import Members
from penstock._memory import available_bytes

if TYPE_CHECKING:
    from penstock import _native

# Read-ahead of one machine, shared by its ranks and loaders: at most this, and at most a share of what is free.
MACHINE_PREFETCH_BYTES = 1 << 30
FREE_MEMORY_SHARE = 4
_CLOSE_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine walks over its members."""

    dataset_id: bytes
    fields: tuple[str, ...]
    batch_size: int
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    last_batch: str
    in_order: bool
    max_displacement: int
    on_error: str
    max_failed_share: float
    prefetch_bytes: int
    # Whether the user chose it; a default may be lowered, and changes with the number of loaders.
    is_prefetch_fixed: bool
    # None lets the engine find out.
    window_bytes: int | None
    store_wait_seconds: float
    # "arena" or "list"
    form: str
    split_digest: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where in an epoch the next batch is: steps done, and steps of the whole epoch."""

    epoch: int
    step: int
    steps: int


class StoreLease:
    """A share of a native store; loaders of one process with one configuration use the same."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._key = json.dumps(config, sort_keys=True)
        self._is_released = False
        self.store = _pool.take(self._key)

    def release(self, patience_seconds: float) -> None:
        """Give it back; the last one closes the store, and waits no longer than this for it."""
        if not self._is_released:
            self._is_released = True
            _pool.give_back(self._key, patience_seconds)


@dataclass(slots=True)
class _SharedStore:
    store: "_native.Store"
    users: int = 0


class _StorePool:
    def __init__(self) -> None:
        # A loader may be collected, or closed by a signal handler, while this thread takes or gives back a store.
        self._lock = threading.RLock()
        self._opened = threading.Condition(self._lock)
        self._stores: dict[str, _SharedStore] = {}
        # Stores that are being opened, and by which thread.
        self._opening: dict[str, int] = {}
        self._inherited: list[dict[str, _SharedStore]] = []

    def take(self, key: str) -> "_native.Store":
        from penstock._native import Store

        this_thread = threading.get_ident()
        with self._lock:
            # A signal handler that wants what its own thread is opening would wait for ever.
            while self._opening.get(key, this_thread) != this_thread:
                self._opened.wait()
            if (shared := self._stores.get(key)) is not None:
                shared.users += 1
                return shared.store
            self._opening[key] = this_thread
        try:
            # Without the lock: a store that does not answer takes seconds, and loaders of others must close meanwhile.
            opened = Store.open(key)
            with self._lock:
                shared = self._stores.setdefault(key, _SharedStore(opened))
                shared.users += 1
        finally:
            with self._lock:
                self._opening.pop(key, None)
                self._opened.notify_all()
        if shared.store is not opened:
            # Such a signal handler was faster.
            opened.close(0.0)
        return shared.store

    def give_back(self, key: str, patience_seconds: float) -> None:
        with self._lock:
            shared = self._stores.get(key)
            if shared is None:
                return
            shared.users -= 1
            if shared.users > 0:
                return
            del self._stores[key]
        shared.store.close(patience_seconds)

    def forget_after_fork(self) -> None:
        # Kept but never used or closed: the parent's threads and sockets do not exist here.
        self._inherited.append(self._stores)
        self._lock = threading.RLock()
        self._opened = threading.Condition(self._lock)
        self._stores = {}
        self._opening = {}


_pool = _StorePool()
os.register_at_fork(after_in_child=_pool.forget_after_fork)


class EngineFace:
    """One native engine; refuses to work in a forked child and after it was closed."""

    def __init__(self, store: "_native.Store", members: Members, options: EngineOptions) -> None:
        from penstock._native import Engine

        self._pid = os.getpid()
        self._is_closed = False
        try:
            self._engine = Engine(store, parts=members.native_parts(options.fields), **_native_options(options))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.prefetch_bytes = options.prefetch_bytes
        """The budget in force."""
        if not options.is_prefetch_fixed:
            self.set_prefetch_bytes(options.prefetch_bytes)

    def set_prefetch_bytes(self, wanted_bytes: int) -> None:
        """Another share of the default budget; what is in force may be less, because nearer stores need less."""
        self.prefetch_bytes = self._usable().set_prefetch_bytes(wanted_bytes)

    def start_epoch(self, epoch: int) -> None:
        """Begin an epoch; drops what is under way of another."""
        self._usable().start_epoch(epoch)

    def next_batch(self) -> "_native.Batch | None":
        """The next batch of the epoch, or None at its end."""
        return self._usable().next_batch()

    def interrupt(self) -> None:
        """Let the call of `next_batch` under way, or else the next one before `start_epoch`, give None at once."""
        self._usable().interrupt()

    def ack(self, seq: int) -> None:
        """Say that the user has this batch."""
        self._usable().ack(seq)

    def state(self) -> str:
        """Where the acknowledged batches stand."""
        return self._usable().state()

    def start_of(self, epoch: int) -> str:
        """The state in which nothing of this epoch is done."""
        return self._usable().start_of(epoch)

    def resume(self, state: str) -> Standing:
        """Let the next `start_epoch` of the state's epoch go on there; raises StateError when it cannot."""
        try:
            epoch, done, left = self._usable().resume(state)
        except ValueError as error:
            raise StateError(str(error)) from None
        return Standing(epoch, done, done + left)

    def failures(self) -> list[SampleFailure]:
        """What acknowledged steps did not deliver, as far as the native core knows; also after closing."""
        require_own_process(self._pid)
        return [SampleFailure.from_native(*row) for row in self._engine.failures()]

    def stats(self) -> Mapping[str, Any]:
        """Counters and histograms of the native stages."""
        return self._usable().stats()

    def signal_close(self) -> None:
        """Stop all requests; in a forked child it only forgets."""
        if not self._is_closed:
            self._is_closed = True
            if self._pid == os.getpid():
                self._engine.close(0.0)

    def join(self, deadline: float) -> None:
        """Wait until its memory is given back, until this time of the monotonic clock at the most."""
        if self._pid == os.getpid():
            self._engine.close(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop all requests and wait until its memory is given back."""
        self.signal_close()
        self.join(time.monotonic() + _CLOSE_SECONDS)

    def _usable(self) -> "_native.Engine":
        require_own_process(self._pid)
        if self._is_closed:
            raise EngineClosed("this loader is closed: make a new one with client.loader(...)")
        return self._engine


def require_own_process(pid: int) -> None:
    """Raise ForkedProcess in any process but `pid`."""
    if os.getpid() != pid:
        raise ForkedProcess(
            f"this loader was made in process {pid} and cannot be used in its child {os.getpid()}, which a fork made "
            "(a torch DataLoader around it, or multiprocessing): make the loader inside the child, or iterate over "
            "it directly; it needs no worker processes"
        )


def default_prefetch_bytes(local_world_size: int, live_loaders: int, *, batch_bytes: int) -> int:
    """This loader's share of the machine's read-ahead, and never less than one batch needs."""
    free = available_bytes()
    machine = MACHINE_PREFETCH_BYTES if free is None else min(MACHINE_PREFETCH_BYTES, free // FREE_MEMORY_SHARE)
    return max(batch_bytes, machine // (local_world_size * max(1, live_loaders)))


def _native_options(options: EngineOptions) -> dict[str, Any]:
    return dataclasses.asdict(options) | {"fields": list(options.fields)}
