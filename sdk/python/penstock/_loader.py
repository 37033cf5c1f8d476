"""The loader: a subset as an endless series of epochs."""

import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from penstock._arguments import LoaderArguments
from penstock._assembly import Assembler
from penstock._batch import Batch
from penstock._engine import EngineFace, EngineOptions, default_prefetch_bytes, require_own_process
from penstock._errors import ConfigError, EngineClosed, StoreError
from penstock._members import open_members
from penstock._meter import Meter
from penstock._models import LoaderPlan
from penstock._ranks import Ranks, find_ranks, find_run
from penstock._reach import reachable_config
from penstock._resources import LoaderResources
from penstock._subset import LoadedSubset, chosen_columns, chosen_fields
from penstock._telemetry import registration_body
from penstock._transport import Transport

_live_loaders: "weakref.WeakSet[Loader]" = weakref.WeakSet()


class EpochSampler:
    """Stands where torch's DataLoader has its sampler, for trainers that call `sampler.set_epoch`."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Same as the loader's."""
        if (loader := self._loader()) is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else len(loader.dataset)


class Loader:
    """Yields the batches of a subset; made by `Client.loader`.

    Every `for` over it is one epoch, in which each sample of this rank comes exactly once. An epoch ends when its last
    batch is handed out; leaving a loop early and iterating again begins the next epoch. Use it in the process that
    made it, without a torch DataLoader around it.

    Attributes:
        dataset: What is read: dataset, version, split, subset, digest; its `len` is the number of samples.
        categories: For each category column in the batch, the names of its class indices.
        epoch: The epoch that runs, or that the next iteration begins.
        sampler: Has `set_epoch`, for trainers that look for it there.

    >>> with client.loader("demo", split="val", batch_size=32, output="numpy") as loader:      # doctest: +SKIP
    ...     for batch in loader:
    ...         print(batch["image"].shape, batch["tumor"])
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

    def __init__(self, plan: LoaderPlan, arguments: LoaderArguments, transport: Transport) -> None:
        self._arguments = arguments
        self._plan = plan
        self._pid = os.getpid()
        self._meter = Meter()
        self._epoch = 0
        self._step = 0
        # Names the iteration that may take batches; any other has ended.
        self._ticket = 0
        self._ranks = Ranks(0, 1)
        config = reachable_config(plan)
        members = open_members(plan, transport)
        fields = chosen_fields(members.header, arguments.fields)
        columns = chosen_columns(members.header, arguments.columns, fields=fields)
        assembler = Assembler(members, fields=fields, columns=columns, decode=arguments.decode, output=arguments.output)
        self._field_names = tuple(field.name for field in fields)
        self._is_pinning = arguments.pin_memory and _can_pin()
        self.dataset = LoadedSubset.of(plan)
        self.categories = {column.name: column.values for column in columns if column.values is not None}
        self.sampler = EpochSampler(self)
        self._resources = LoaderResources(members, assembler, config, transport)
        self._finalizer = weakref.finalize(self, self._resources.close)
        _live_loaders.add(self)

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
        """Steps of this rank in an epoch, equal on all ranks."""
        return self._engine().steps()

    def __iter__(self) -> Iterator[Batch]:
        """An iteration over one epoch; nothing happens before its first `next`."""
        return _Iteration(self)

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
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise ConfigError(f"epoch is {epoch!r}: expected a whole number of at least 0")
        if epoch != self._epoch:
            self._epoch = epoch
            self._step = 0
            self._ticket += 1

    def stats(self) -> dict[str, Any]:
        """What it has done so far: `samples`, `bytes`, `wait_seconds`..., and under `engine` the native counters."""
        totals = self._meter.totals()
        engine = self._resources.engine
        return {
            "samples": totals.samples,
            "bytes": totals.bytes,
            "batches": totals.batches,
            "wait_seconds": totals.wait_seconds,
            "decode_seconds": totals.decode_seconds,
            "errors": totals.errors,
            "epoch": self._epoch,
            "step": self._step,
            "engine": {} if engine is None else dict(engine.stats()),
        }

    def close(self) -> None:
        """Stop reading and tell the Live page; a running iteration then raises EngineClosed."""
        self._finalizer()

    def _begin(self) -> int:
        engine = self._engine(is_new_iteration=True)
        if self._step > 0:
            self._epoch += 1
        self._step = 0
        self._ticket += 1
        self._meter.stand(epoch=self._epoch, step=0, steps=engine.steps())
        self._start_telemetry()
        self._resources.running_pipeline(engine).start(self._epoch)
        return self._ticket

    def _next(self, ticket: int) -> Batch | None:
        self._require_usable()
        pipeline = self._resources.pipeline
        if ticket != self._ticket or pipeline is None:
            return None
        self._meter.begin_wait()
        try:
            assembled = pipeline.next()
            if assembled is None:
                self._end_epoch()
                return None
            batch = assembled.batch.pin_memory() if self._is_pinning else assembled.batch
        except Exception as error:
            self._meter.count_error()
            self._note_failure(error)
            # What cannot be read uses up its step: a loop that goes on after errors still comes to its end.
            if isinstance(error, StoreError):
                self._count_step()
            raise
        finally:
            self._meter.end_wait()
        self._engine_in_use().ack(assembled.seq)
        self._meter.count_batch(
            samples=assembled.sample_count, byte_count=assembled.byte_count, decode_seconds=assembled.decode_seconds
        )
        self._count_step()
        return batch

    def _count_step(self) -> None:
        self._step += 1
        steps = self._engine_in_use().steps()
        self._meter.stand(epoch=self._epoch, step=self._step, steps=steps)
        # Trainers take exactly len(loader) batches and never ask for the end.
        if self._step >= steps:
            self._end_epoch()

    def _end_epoch(self) -> None:
        self._epoch += 1
        self._step = 0
        self._ticket += 1

    def _note_failure(self, error: BaseException) -> None:
        # Ctrl-C and the like are no failure of the loader.
        if isinstance(error, Exception) and self._resources.telemetry is not None:
            self._resources.telemetry.fail(f"{type(error).__name__}: {error}")

    def _engine_in_use(self) -> EngineFace:
        engine = self._resources.engine
        if engine is None:
            raise EngineClosed("this loader is closed: make a new one with client.loader(...)")
        return engine

    def _engine(self, *, is_new_iteration: bool = False) -> EngineFace:
        """The engine for the ranks as they are now: a process group may have come up after the loader was made."""
        self._require_usable()
        ranks = find_ranks(self._arguments.rank, self._arguments.world_size)
        may_replace = is_new_iteration or self._step == 0
        if self._resources.engine is None or (ranks != self._ranks and may_replace):
            self._ranks = ranks
            self._resources.replace_engine(self._options(ranks))
        return self._engine_in_use()

    def _options(self, ranks: Ranks) -> EngineOptions:
        arguments = self._arguments
        live = sum(1 for loader in _live_loaders if loader._finalizer.alive)
        return EngineOptions(
            dataset_id=UUID(self._plan.dataset.id).bytes,
            fields=self._field_names,
            batch_size=arguments.batch_size,
            shuffle=arguments.shuffle,
            seed=arguments.seed,
            rank=ranks.rank,
            world_size=ranks.world_size,
            last_batch=arguments.effective_last_batch(ranks.world_size),
            in_order=arguments.in_order,
            prefetch_bytes=arguments.prefetch_bytes or default_prefetch_bytes(ranks.local_world_size, live),
        )

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


class _Iteration(Iterator[Batch]):
    """One pass over an epoch; ends for good when it is through or when a newer one has begun."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._ticket: int | None = None
        self._is_over = False

    def __next__(self) -> Batch:
        if self._is_over:
            raise StopIteration
        if self._ticket is None:
            self._ticket = self._loader._begin()
        batch = self._loader._next(self._ticket)
        if batch is None:
            self._is_over = True
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def _can_pin() -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True has no effect: no CUDA device is available here", UserWarning, stacklevel=4)
    return False
