"""Assembles the next batches while the trainer works on this one."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from penstock._assembly import Assembled, Assembler, BatchUndecodable
from penstock._engine import EngineFace
from penstock._errors import EngineClosed, StoreError
from penstock._failures import SampleFailure

# One batch is being taken while the other is being made; more would only hold memory.
DEPTH = 2
_CLOSE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Lost:
    """An error in the place of a batch, the number of that batch, and what is not reported of it yet."""

    error: StoreError
    seq: int
    missed: tuple[SampleFailure, ...] = ()


class Pipeline:
    """One thread between the engine and the user.

    It never holds the loader, so that a loader nobody uses any more is closed.
    """

    def __init__(self, engine: EngineFace, assembler: Assembler) -> None:
        self._engine = engine
        self._assembler = assembler
        self._changed = threading.Condition()
        self._ready: deque[Assembled | Lost | None] = deque()
        self._failure: BaseException | None = None
        # Epoch and state from which it is entered.
        self._wanted: tuple[int, str] | None = None
        # A number for every start: what is made for an older one is thrown away.
        self._generation = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-assembly", daemon=True)
        self._thread.start()

    @property
    def ready_batches(self) -> int:
        """Finished batches that wait for the user."""
        return len(self._ready)

    def start(self, epoch: int, state: str) -> None:
        """Enter an epoch where the state stands; drops all that belongs to another."""
        with self._changed:
            self._drop()
            self._wanted = (epoch, state)

    def cancel(self) -> None:
        """Drop everything; nothing is made before the next start."""
        with self._changed:
            self._drop()

    def _drop(self) -> None:
        self._generation += 1
        self._ready.clear()
        self._failure = None
        self._wanted = None
        self._changed.notify_all()

    def next(self) -> Assembled | Lost | None:
        """The next batch, or the error in its place, or None at the end of the epoch.

        The call after a lost batch goes on behind it; an error that is raised stays until the next start.
        """
        with self._changed:
            while not self._ready:
                if self._failure is not None:
                    raise self._failure
                if self._is_closed:
                    raise EngineClosed("this loader was closed while a batch was waited for")
                self._changed.wait()
            if self._ready[0] is None:
                return None
            ready = self._ready.popleft()
            self._changed.notify_all()
        return ready

    def give_back(self, batch: Assembled) -> None:
        """Hand out a batch again that did not reach the user; nothing may have been started or cancelled since."""
        with self._changed:
            self._ready.appendleft(batch)

    def signal_close(self) -> None:
        """Let the thread end; the engine must have been told before, so that it waits for nothing."""
        with self._changed:
            self._is_closed = True
            self._ready.clear()
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the thread, until this time of the monotonic clock at the most."""
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the thread."""
        self.signal_close()
        self.join(time.monotonic() + _CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._is_closed:
                    self._changed.wait()
                if self._is_closed or self._wanted is None:
                    return
                generation = self._generation
            try:
                self._enter(generation)
                self._fill(generation)
            except BaseException as error:
                # Raised again in the thread that asks for the batch.
                self._fail(error, generation)

    def _enter(self, generation: int) -> None:
        # With the lock held: a start that is no longer wanted must not use up the state of a newer one.
        with self._changed:
            if generation == self._generation and self._wanted is not None:
                epoch, state = self._wanted
                self._wanted = None
                self._engine.resume(state)
                self._engine.start_epoch(epoch)

    def _fill(self, generation: int) -> None:
        while self._has_room(generation):
            made = self._made()
            with self._changed:
                if generation != self._generation or self._is_closed:
                    return
                self._ready.append(made)
                self._changed.notify_all()
            if made is None:
                return

    def _made(self) -> Assembled | Lost | None:
        try:
            native = self._engine.next_batch()
            return None if native is None else self._assembler.assemble(native)
        except BatchUndecodable as lost:
            return Lost(lost.error, lost.seq, lost.missed)
        except StoreError as error:
            if error.seq is None:
                raise
            return Lost(error, error.seq, ())

    def _has_room(self, generation: int) -> bool:
        with self._changed:
            while len(self._ready) >= DEPTH and generation == self._generation and not self._is_closed:
                self._changed.wait()
            return generation == self._generation and not self._is_closed

    def _fail(self, error: BaseException, generation: int) -> None:
        with self._changed:
            if generation == self._generation:
                self._failure = error
                self._changed.notify_all()
