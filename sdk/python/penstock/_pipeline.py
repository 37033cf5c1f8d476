"""Assembles the next batches while the trainer works on this one."""

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from penstock._assembly import Assembled, Assembler, BatchUndecodable
from penstock._engine import EngineFace, Standing
from penstock._errors import EngineClosed, StoreError
from penstock._failures import SampleFailure

# One batch is being taken while the other is being made; more would only hold memory.
DEPTH = 2
# As in the native core, which gives up what it has read when nobody has asked for so long. It doubles with each time: a
# trainer that is only slow does not read everything twice at every step.
IDLE_SECONDS = 60.0
_MOST_DOUBLINGS = 6
_CLOSE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Lost:
    """An error in the place of a batch, the number of that batch, and what is not reported of it yet."""

    error: StoreError
    seq: int
    missed: tuple[SampleFailure, ...] = ()


class _Bell:
    """Wakes the user's thread; one call each, where a signal handler that raises can leave nothing half done.

    It may do so anywhere in `Condition.wait`, which then leaves its lock in disorder.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Let one wait end; a second ring before that does nothing."""
        with suppress(RuntimeError):
            self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


class Pipeline:
    """One thread between the engine and the user.

    It never holds the loader, so that a loader nobody uses any more is closed.
    """

    def __init__(self, engine: EngineFace, assembler: Assembler) -> None:
        self._engine = engine
        self._assembler = assembler
        # Taken without the condition around it, whose own `with` stays locked when a signal handler raises in it.
        self._lock = threading.RLock()
        # For the thread: there is something to do.
        self._changed = threading.Condition(self._lock)
        # For the user: there is something to take.
        self._arrived = _Bell()
        self._ready: deque[Assembled | Lost | None] = deque()
        self._failure: BaseException | None = None
        # Epoch and state from which it is entered.
        self._wanted: tuple[int, str] | None = None
        # The epoch that was entered last.
        self._epoch = 0
        # Whether its batches were given up, because nobody took them; they come again when somebody asks.
        self._is_parked = False
        self._park_count = 0
        # A number for every start: what is made for an older one is thrown away.
        self._generation = 0
        # Whether nothing comes before the next start.
        self._is_dropped = True
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-assembly", daemon=True)
        self._thread.start()

    @property
    def ready_batches(self) -> int:
        """Finished batches that wait for the user."""
        return len(self._ready)

    def start(self, epoch: int, state: str) -> None:
        """Enter an epoch where the state stands; drops all that belongs to another."""
        with self._lock:
            self._drop()
            self._wanted = (epoch, state)
            self._is_dropped = False

    def stand(self, state: str) -> Standing:
        """Let the engine stand there and drop everything; nothing is made before the next start.

        A state that is refused changes nothing.
        """
        # A start that is not entered yet would use up the state between the two.
        with self._lock:
            standing = self._engine.resume(state)
            self._drop()
        return standing

    def _drop(self) -> None:
        self._generation += 1
        self._is_dropped = True
        self._is_parked = False
        self._ready.clear()
        self._failure = None
        self._wanted = None
        # Nobody waits for a batch of the old start any more, so that a new one is entered at once.
        self._engine.interrupt()
        self._changed.notify_all()
        self._arrived.ring()

    def peek(self) -> Assembled | Lost | None:
        """The next batch, or the error in its place, or None at the end of the epoch; it stays until it is taken.

        An error that is raised stays until the next start.
        """
        while True:
            with self._lock:
                if self._is_parked:
                    self._unpark()
                if self._ready or self._failure is not None or self._is_closed or self._is_dropped:
                    # Another thread may wait for the same.
                    self._arrived.ring()
                    return self._first()
            self._arrived.wait()

    def take(self, ready: Assembled | Lost) -> None:
        """Go on behind this one; a second time does nothing."""
        with self._lock:
            # Before it is gone: the thread must also hear of it when a signal handler raises in between.
            self._changed.notify_all()
            if self._ready and self._ready[0] is ready:
                self._ready.popleft()

    def _unpark(self) -> None:
        # All that was taken is acknowledged by now, so that the state has it and nothing else.
        state = self._engine.state()
        self._changed.notify_all()
        self._wanted = (self._epoch, state)
        self._is_parked = False

    def _first(self) -> Assembled | Lost | None:
        if self._ready:
            return self._ready[0]
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise EngineClosed("this loader was closed while a batch was waited for")
        return None

    def signal_close(self) -> None:
        """Let the thread end; the engine must have been told before, so that it waits for nothing."""
        with self._lock:
            self._is_closed = True
            self._ready.clear()
            self._changed.notify_all()
            self._arrived.ring()

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
            with self._lock:
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
        with self._lock:
            if generation == self._generation and self._wanted is not None:
                self._epoch, state = self._wanted
                self._wanted = None
                self._engine.resume(state)
                self._engine.start_epoch(self._epoch)
                self._assembler.start_epoch()

    def _fill(self, generation: int) -> None:
        while self._has_room(generation):
            self._lay_down(self._made(), generation)

    def _lay_down(self, made: Assembled | Lost | None, generation: int) -> None:
        with self._lock:
            if self._is_current(generation):
                self._ready.append(made)
                self._arrived.ring()

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
        """Wait until the next batch is to be made; False when none is, for this start or for now."""
        with self._lock:
            while self._is_current(generation) and self._is_full():
                is_idle = not self._changed.wait(IDLE_SECONDS * 2 ** min(self._park_count, _MOST_DOUBLINGS))
                if is_idle and self._is_current(generation) and self._is_full() and self._ready[0] is not None:
                    self._ready.clear()
                    self._is_parked = True
                    self._park_count += 1
                    return False
            return self._is_current(generation)

    def _is_full(self) -> bool:
        # Behind the end nothing comes.
        return len(self._ready) >= DEPTH or (len(self._ready) > 0 and self._ready[-1] is None)

    def _is_current(self, generation: int) -> bool:
        return generation == self._generation and not self._is_closed

    def _fail(self, error: BaseException, generation: int) -> None:
        with self._lock:
            if generation == self._generation:
                self._failure = error
                self._arrived.ring()
