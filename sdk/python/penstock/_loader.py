"""The loader: a subset as an endless series of epochs."""

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock._arguments import LoaderArguments
from penstock._assembly import Assembled
from penstock._batch import Batch
from penstock._delivered import DeliveredLog
from penstock._engine import EngineFace, require_own_process
from penstock._errors import ConfigError, EngineClosed, StateError
from penstock._failures import SampleFailure
from penstock._gather import gathered
from penstock._iteration import EpochSampler, Iteration
from penstock._meter import Meter, Totals
from penstock._pipeline import Lost, Pipeline
from penstock._plan import resolved
from penstock._ranks import Ranks, find_ranks, find_run
from penstock._resources import LoaderResources
from penstock._state import Asked, SavedState, merge_states
from penstock._telemetry import registration_body
from penstock._transport import Transport

_EPOCHS = 1 << 63


@dataclass(slots=True)
class _Owed:
    """A batch, or the error in its place, on its way to the user.

    A signal handler may raise anywhere on that way. Then it is handed out at the next call, and what was already done
    for it must not count twice: everything is reckoned from what was here before it.
    """

    ready: Assembled | Lost
    ticket: int
    epoch: int
    step: int
    steps: int
    totals: Totals
    batch: Batch | None = None
    """What the user gets, once it is pinned."""
    is_logged: bool = False


class Loader:
    """Yields the batches of a subset; made by `Client.loader`.

    Every `for` over it is one epoch, in which each sample of this rank comes exactly once. An epoch ends when its last
    batch is handed out; leaving a loop early and iterating again begins the next epoch. `state_dict` says which batches
    were handed out, and a loader with that state loaded hands out the others. Use it in the process that made it,
    without a torch DataLoader around it.

    Attributes:
        dataset: What is read: dataset, version, split, subset, digest; its `len` is the number of samples.
        categories: For each category column in the batch, the names of its class indices.
        epoch: The epoch that runs, or that the next iteration begins.
        sampler: Has `set_epoch`, for trainers that look for it there.

    >>> with client.loader("demo", split="val", batch_size=32, output="numpy") as loader:
    ...     for batch in loader:
    ...         print(batch["image"].shape, batch["tumor"][:4])
    (32, 3, 8, 8) [-1  0  1  2]
    (32, 3, 8, 8) [-1  0  1  2]
    (32, 3, 8, 8) [-1  0  1  2]
    (5, 3, 8, 8) [-1  0  1  2]
    """

    # What code written for torch's DataLoader reads.
    num_workers = 0
    prefetch_factor = None
    timeout = 0
    batch_sampler = None
    collate_fn = None
    generator = None
    worker_init_fn = None
    multiprocessing_context = None
    persistent_workers = False
    pin_memory_device = ""

    _finalizer: "weakref.finalize[[], Loader]"

    def __init__(self, asked: Asked, arguments: LoaderArguments, transport: Transport) -> None:
        self._asked = asked
        self._arguments = arguments
        self._transport = transport
        self._pid = os.getpid()
        self._meter = Meter()
        self._epoch = 0
        # Steps of this epoch that are done, and all of its steps.
        self._step = 0
        self._steps = 0
        # Whether anything was handed out since the loader was put where it stands.
        self._is_under_way = False
        # The engine's state that was loaded and not used yet.
        self._loaded: str | None = None
        # Names the iteration that may take batches; any other has ended.
        self._ticket = 0
        # What an iteration has taken and the user has not got.
        self._owed: _Owed | None = None
        # The iteration and the thread inside of `next`: a second thread would get the same batch.
        self._taker: tuple[int, int] | None = None
        self._ranks = find_ranks(arguments.rank, arguments.world_size)
        self.sampler = EpochSampler(self)
        log = arguments.delivered_log
        self._delivered = None if log is None else DeliveredLog(log, self._ranks)
        self._adopt(self._opened(asked, self._ranks))
        self._is_pinning = arguments.pin_memory and _can_pin()
        self._stand(0)

    def __repr__(self) -> str:
        return f"Loader({self.dataset}, {len(self.dataset)} samples, batch_size={self.batch_size})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a loader belongs to its process and is not pickled: make a new one where it is needed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._note_failure(error)
        self.close()

    def __len__(self) -> int:
        """Steps of this rank in this epoch, done and left, equal on all ranks."""
        self._require_usable()
        self._follow_ranks()
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        """An iteration over one epoch; nothing happens before its first `next`."""
        return Iteration(self)

    @property
    def epoch(self) -> int:
        """The epoch that runs, or that the next iteration begins."""
        return self._epoch

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank."""
        return self._arguments.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether the last positions that do not fill a batch are left out."""
        return self._arguments.last_batch == "drop"

    @property
    def pin_memory(self) -> bool:
        """Whether batches are in page-locked memory."""
        return self._is_pinning

    @property
    def in_order(self) -> bool:
        """Whether the order of the plan is kept exactly."""
        return self._arguments.in_order

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; the same epoch changes nothing, another ends a running one."""
        if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < _EPOCHS:
            raise ConfigError(f"epoch is {epoch!r}: expected a whole number of at least 0, and below 2**63")
        self._require_usable()
        if epoch != self._epoch:
            self._stand(epoch)

    def state_dict(self) -> dict[str, str]:
        """Which batches were handed out, to be saved with the model: one line of text under the key `penstock`.

        On several ranks this is the state of this rank alone, and it warns: use `gather_state`, or join the states of
        all ranks with `penstock.merge_states`.
        """
        state = self._followed_state()
        ranks = self._ranks
        if ranks.world_size > 1:
            warnings.warn(
                f"this is the state of rank {ranks.rank} of {ranks.world_size} alone, which only the same rank of as "
                "many can go on from: save gather_state(), or join those of all ranks with penstock.merge_states()",
                UserWarning,
                stacklevel=2,
            )
        return state

    def gather_state(self, group: Any = None) -> dict[str, str]:
        """The state of all ranks together, for any number of ranks; every rank has to call it after the same step.

        Args:
            group: The torch process group of the loader's ranks, when that is not the whole world.
        """
        require_own_process(self._pid)
        ranks = self._ranks_now()
        # A rank that cannot says so together with the others, which would wait for it otherwise.
        states = [self._followed_state()] if ranks.world_size == 1 else gathered(self._followed_state, ranks, group)
        return merge_states(states)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where the state was taken, with any batch size; an empty state does nothing.

        The state's own version of dataset and split is read, also when there are newer ones. A merged state fits any
        number of ranks.

        Raises:
            StateError: The state is damaged or of another subset, seed or format, or ranks are missing.
        """
        self._require_usable()
        saved = SavedState.from_dict(state)
        if saved is None:
            return
        ranks = self._ranks_now()
        here = self._resources.pin
        if saved.pin.is_same(here):
            self._stand_as(ranks, 0, loaded=saved.place)
            return
        if not saved.pin.is_within(self._asked, here.dataset_id):
            raise StateError(
                f"the state belongs to another split: {saved.pin} was saved, this loader is for {self._asked}"
            )
        self._adopt(self._opened(saved.pin.as_asked(here.dataset), ranks, loaded=saved.place))
        self._ranks = ranks
        self._stand(0, loaded=saved.place)

    def failures(self) -> list[SampleFailure]:
        """Every sample that the steps taken so far did not deliver, also after `close`.

        Of each epoch, the samples delivered (`batch["valid"]`) and those named here are together what is done, none
        twice. `failure.lost_with` is None for a sample that could not be read or decoded, of which the last thousand
        are kept; else the sample is sound, and that other one took its whole batch with it (`on_error="raise"`): of
        these the last 65,536 are kept.
        """
        require_own_process(self._pid)
        return self._resources.failures()

    def stats(self) -> dict[str, Any]:
        """What it has done so far: `samples`, `bytes`, `wait_seconds`..., and under `engine` the native counters.

        The limits in force are there too, found or fixed: `prefetch_bytes`, and of the engine `window_bytes` and
        `lanes` (connections, over all nodes).
        """
        require_own_process(self._pid)
        totals = self._meter.totals()
        prefetch_bytes, native = 0, {}
        if (engine := self._resources.engine) is not None:
            # It may be closing in another thread.
            with suppress(EngineClosed):
                prefetch_bytes, native = engine.prefetch_bytes, dict(engine.stats())
        return {
            "samples": totals.samples,
            "bytes": totals.bytes,
            "batches": totals.batches,
            "wait_seconds": totals.wait_seconds,
            "decode_seconds": totals.decode_seconds,
            "errors": totals.errors,
            "epoch": self._epoch,
            "step": self._step,
            "steps": self._steps,
            "prefetch_bytes": prefetch_bytes,
            "engine": native,
        }

    def close(self) -> None:
        """Stop reading and tell the Live page; a running iteration then raises EngineClosed."""
        self._finalizer()

    def _begin(self) -> int:
        self._require_usable()
        if self._is_under_way:
            self._stand(self._epoch + 1)
        self._follow_ranks()
        self._ticket += 1
        self._owed = None
        engine = self._engine_in_use()
        self._meter.stand(epoch=self._epoch, step=self._step, steps=self._steps)
        self._start_telemetry()
        start = self._loaded or engine.start_of(self._epoch)
        self._resources.running_pipeline(engine).start(self._epoch, start)
        return self._ticket

    def _next(self, ticket: int) -> Batch | None:
        self._require_usable()
        taker = (ticket, threading.get_ident())
        other = self._taker
        if other is not None and other[0] == ticket and other != taker:
            raise ConfigError("two threads ask this loader for a batch at the same time: let one of them do it")
        self._taker = taker
        try:
            pipeline = self._resources.pipeline
            # The last batch of an epoch may still be owed to the iteration that it ended.
            running = self._ticket if self._owed is None else self._owed.ticket
            if ticket != running or pipeline is None:
                return None
            owed = self._awaited(pipeline)
            if owed is None:
                # Unless it was put somewhere else during the wait, by another thread or a signal handler.
                if ticket == self._ticket:
                    self._stand(self._epoch + 1)
                return None
            if isinstance(owed.ready, Lost):
                error = owed.ready.error
                self._count_lost(owed, error)
                self._take_step(owed)
                self._owed = None
                raise error
            batch = owed.batch or owed.ready.batch
            self._count_batch(owed, owed.ready, batch)
            self._take_step(owed)
            # Nothing is called from here on, so that no signal handler runs: the batch is owed, or the user has it.
            self._owed = None
            return batch
        finally:
            if self._taker is taker:
                self._taker = None

    def _awaited(self, pipeline: Pipeline) -> _Owed | None:
        try:
            self._meter.begin_wait()
            if self._owed is None:
                ready = pipeline.peek()
                if ready is None:
                    return None
                totals = self._meter.totals()
                self._owed = _Owed(ready, self._ticket, self._epoch, self._step, self._steps, totals)
            owed = self._owed
            pipeline.take(owed.ready)
            if self._is_pinning and owed.batch is None and isinstance(owed.ready, Assembled):
                # When there is no room for it now, there may be at the next call.
                owed.batch = owed.ready.batch.pin_memory()
        except Exception as error:
            self._count_error(error)
            raise
        finally:
            self._meter.end_wait()
        return owed

    def _count_lost(self, owed: _Owed, error: Exception) -> None:
        if self._meter.totals().errors == owed.totals.errors:
            self._count_error(error)

    def _count_batch(self, owed: _Owed, made: Assembled, batch: Batch) -> None:
        if self._delivered is not None and not owed.is_logged:
            self._delivered.write(self.dataset, self._ranks, epoch=owed.epoch, step=owed.step, batch=batch)
            owed.is_logged = True
        if self._meter.totals().batches == owed.totals.batches:
            self._meter.count_batch(
                samples=made.sample_count, byte_count=made.byte_count, decode_seconds=made.decode_seconds
            )

    def _count_error(self, error: Exception) -> None:
        self._meter.count_error()
        self._note_failure(error)

    def _take_step(self, owed: _Owed) -> None:
        """What cannot be read uses up its step too: a loop that goes on after errors still comes to its end."""
        self._resources.undecodable.keep(owed.ready.missed)
        self._meter.stand(epoch=owed.epoch, step=owed.step + 1, steps=owed.steps)
        # As late as can be: from here on the state says that the user has it.
        self._engine_in_use().ack(owed.ready.seq)
        self._is_under_way = True
        self._step = owed.step + 1
        # Trainers take exactly len(loader) batches and never ask for the end.
        if owed.step + 1 >= owed.steps:
            self._stand(owed.epoch + 1, owed=owed)

    def _stand(self, epoch: int, *, loaded: str | None = None, owed: _Owed | None = None) -> None:
        """Let the next iteration begin at an epoch, or where a loaded state says; a running one ends.

        It still gets what is owed to it when its own end is the reason.
        """
        engine, pipeline = self._engine_in_use(), self._resources.pipeline
        place = loaded or engine.start_of(epoch)
        standing = engine.resume(place) if pipeline is None else pipeline.stand(place)
        self._ticket += 1
        self._owed = owed
        self._loaded = loaded
        self._is_under_way = False
        self._epoch, self._step, self._steps = standing.epoch, standing.step, standing.steps

    def _followed_state(self) -> dict[str, str]:
        self._require_usable()
        self._follow_ranks()
        return self._state()

    def _state(self) -> dict[str, str]:
        return SavedState(self._resources.pin, self._engine_in_use().state()).to_dict()

    def _note_failure(self, error: BaseException) -> None:
        # Ctrl-C and the like are no failure of the loader.
        if isinstance(error, Exception) and self._resources.telemetry is not None:
            self._resources.telemetry.fail(f"{type(error).__name__}: {error}")

    def _engine_in_use(self) -> EngineFace:
        engine = self._resources.engine
        if engine is None:
            raise EngineClosed("this loader is closed: make a new one with client.loader(...)")
        return engine

    def _follow_ranks(self) -> None:
        """Go over to other ranks; a loaded state that does not fit them is refused at every call."""
        if (ranks := self._ranks_now()) != self._ranks:
            self._stand_as(ranks, self._epoch, loaded=self._loaded)

    def _stand_as(self, ranks: Ranks, epoch: int, *, loaded: str | None) -> None:
        """Stand as one of these ranks; a state that does not fit them is refused and changes nothing."""
        if ranks == self._ranks:
            self._stand(epoch, loaded=loaded)
            return
        try:
            self._resources.replace_engine(ranks)
            self._stand(epoch, loaded=loaded)
        except BaseException:
            self._resources.replace_engine(self._ranks)
            self._stand(self._epoch, loaded=self._loaded)
            raise
        self._ranks = ranks

    def _ranks_now(self) -> Ranks:
        """A process group may have come up after the loader was made; a running iteration keeps its ranks."""
        if self._is_under_way:
            return self._ranks
        return find_ranks(self._arguments.rank, self._arguments.world_size)

    def _opened(self, asked: Asked, ranks: Ranks, *, loaded: str | None = None) -> LoaderResources:
        """A subset with the engine of a rank, which takes the loaded state if there is one; else nothing stays open."""
        resources = LoaderResources(resolved(self._transport, asked), self._arguments, self._transport)
        try:
            engine = resources.replace_engine(ranks)
            if loaded is not None:
                engine.resume(loaded)
        except BaseException:
            resources.close()
            raise
        return resources

    def _adopt(self, resources: LoaderResources) -> None:
        """Read from these from now on; what was read from before is closed."""
        finalizer = weakref.finalize(self, resources.close)
        # At exit all loaders are closed together.
        finalizer.atexit = False
        if hasattr(self, "_finalizer"):
            self._finalizer()
        self._finalizer = finalizer
        self._resources = resources
        self.dataset = resources.subset
        self.categories = resources.categories

    def _require_usable(self) -> None:
        require_own_process(self._pid)
        if not self._finalizer.alive:
            raise EngineClosed("this loader is closed: make a new one with client.loader(...)")

    def _start_telemetry(self) -> None:
        if self._arguments.has_telemetry:
            body = registration_body(
                self.dataset,
                run=find_run(self._arguments.run),
                ranks=self._ranks,
                batch_size=self.batch_size,
                output=self._arguments.output,
            )
            self._resources.start_telemetry(self._meter, body)


def _can_pin() -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True has no effect: no CUDA device is available here", UserWarning, stacklevel=4)
    return False
