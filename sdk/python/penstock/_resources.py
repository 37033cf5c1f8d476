"""All that belongs to one pinned subset and must be given back: store, engine, threads."""

import atexit
import os
import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any
from uuid import UUID

from penstock._arguments import LoaderArguments
from penstock._assembly import Assembler
from penstock._engine import EngineFace, EngineOptions, StoreLease, default_prefetch_bytes
from penstock._errors import EngineClosed
from penstock._failures import DecodeFailures, SampleFailure, joined
from penstock._members import open_members
from penstock._meter import Gauges, Meter
from penstock._models import LoaderPlan
from penstock._pipeline import Pipeline
from penstock._ranks import Ranks
from penstock._reach import reachable_config
from penstock._shares import shares
from penstock._state import Pin
from penstock._subset import LoadedSubset, chosen_columns, chosen_fields
from penstock._telemetry import Telemetry
from penstock._transport import Transport

# Of the two seconds in which loaders end; the rest is the interpreter's.
CLOSE_SECONDS = 1.5
_STORE_CLOSE_SECONDS = 0.2
_open: "weakref.WeakSet[LoaderResources]" = weakref.WeakSet()


class LoaderResources:
    """Held by the loader and by its finalizer; never holds the loader itself."""

    def __init__(self, plan: LoaderPlan, arguments: LoaderArguments, transport: Transport) -> None:
        self._arguments = arguments
        self._transport = transport
        self._dataset_id = UUID(plan.dataset.id).bytes
        config = reachable_config(plan, lanes=arguments.lanes)
        self.members = open_members(plan, transport)
        fields = chosen_fields(self.members.header, arguments.fields)
        columns = chosen_columns(self.members.header, arguments.columns, fields=fields)
        self._field_names = tuple(field.name for field in fields)
        self.undecodable = DecodeFailures(arguments.max_failed_share)
        self._assembler = Assembler(
            self.members,
            fields=fields,
            columns=columns,
            decode=arguments.decode,
            output=arguments.output,
            on_error=arguments.on_error,
            failures=self.undecodable,
        )
        self.pin = Pin.of(plan)
        self.subset = LoadedSubset.of(plan)
        self.categories = {column.name: column.values for column in columns if column.values is not None}
        self._lease = StoreLease(config)
        self._pid = os.getpid()
        self._unread: list[SampleFailure] = []
        self._ranks: Ranks | None = None
        self._batch_bytes = self.members.batch_bytes(self._field_names, arguments.batch_size)
        self._last_gauges = Gauges()
        self.engine: EngineFace | None = None
        self.pipeline: Pipeline | None = None
        self.telemetry: Telemetry | None = None

    def replace_engine(self, ranks: Ranks) -> EngineFace:
        """Build the engine for these ranks; an older one is closed."""
        older = (self.engine, self.pipeline)
        self._signal_engine()
        deadline = time.monotonic() + CLOSE_SECONDS
        for part in older:
            if part is not None:
                part.join(deadline)
        self._ranks = ranks
        live_loaders = shares.join(self)
        self.engine = EngineFace(self._lease.store, self.members, self._options(ranks, live_loaders))
        # Once more: others may have come or gone meanwhile.
        shares.join(self)
        _close_at_exit(self)
        return self.engine

    def take_share(self, live_loaders: int) -> None:
        """So many loaders divide the default budget from now on."""
        engine, ranks = self.engine, self._ranks
        if self._arguments.prefetch_bytes is None and engine is not None and ranks is not None:
            # It may be closing in another thread.
            with suppress(EngineClosed):
                engine.set_prefetch_bytes(self._share(ranks, live_loaders))

    def running_pipeline(self, engine: EngineFace) -> Pipeline:
        """The thread that assembles batches; made when the first is asked for."""
        if self.pipeline is None:
            self.pipeline = Pipeline(engine, self._assembler)
        return self.pipeline

    def start_telemetry(self, meter: Meter, registration: Mapping[str, Any]) -> None:
        """Begin to report; once a loader."""
        if self.telemetry is None:
            self.telemetry = Telemetry(self._transport, registration, meter, gauges=self.gauges)

    def gauges(self) -> Gauges:
        """Current values of engine and pipeline."""
        engine, pipeline = self.engine, self.pipeline
        gauges = self._last_gauges if engine is None else Gauges.from_stats(engine.stats())
        return gauges.with_ready(0 if pipeline is None else pipeline.ready_batches)

    def failures(self) -> list[SampleFailure]:
        """What the steps taken did not deliver, each sample once an epoch; also after closing."""
        current = [] if self.engine is None else self.engine.failures()
        return joined([*self._unread, *current, *self.undecodable.to_list()])

    def close(self) -> None:
        """Give everything back; in a forked child nothing of it exists."""
        close_together([self])

    def _signal_close(self) -> None:
        """Tell every part to end, and wait for none."""
        _open.discard(self)
        # They run from the last to the first, each of them also when another raises.
        with ExitStack() as steps:
            steps.callback(self._assembler.close)
            steps.callback(self._signal_engine)
            if self.telemetry is not None:
                steps.callback(self.telemetry.signal_stop)
            steps.callback(self._keep_gauges)
            steps.callback(shares.leave, self)

    def _keep_gauges(self) -> None:
        """The last point of the Live page is made after the engine's end."""
        if self.engine is not None:
            # A page that shows older values is no reason to stay open.
            with suppress(Exception):
                self._last_gauges = Gauges.from_stats(self.engine.stats())

    def _signal_engine(self) -> None:
        engine, pipeline = self.engine, self.pipeline
        self.engine = self.pipeline = None
        with ExitStack() as steps:
            if pipeline is not None:
                steps.callback(pipeline.signal_close)
            if engine is not None:
                steps.callback(engine.signal_close)
                self._unread = joined([*self._unread, *engine.failures()])

    def _share(self, ranks: Ranks, live_loaders: int) -> int:
        return default_prefetch_bytes(ranks.local_world_size, live_loaders, batch_bytes=self._batch_bytes)

    def _options(self, ranks: Ranks, live_loaders: int) -> EngineOptions:
        arguments = self._arguments
        return EngineOptions(
            dataset_id=self._dataset_id,
            fields=self._field_names,
            batch_size=arguments.batch_size,
            shuffle=arguments.shuffle,
            seed=arguments.seed,
            rank=ranks.rank,
            world_size=ranks.world_size,
            last_batch=arguments.effective_last_batch(ranks.world_size),
            in_order=arguments.in_order,
            max_displacement=arguments.max_displacement,
            on_error=arguments.on_error,
            max_failed_share=arguments.max_failed_share,
            prefetch_bytes=arguments.prefetch_bytes or self._share(ranks, live_loaders),
            is_prefetch_fixed=arguments.prefetch_bytes is not None,
            window_bytes=arguments.window_bytes,
            store_wait_seconds=arguments.store_wait_seconds,
            form="list" if self._assembler.takes_lists else "arena",
            split_digest=self.subset.digest,
        )


def close_together(loaders: Iterable[LoaderResources]) -> None:
    """Close them within one limit of time: first every part of all of them is told, then they are waited for.

    An error, or Ctrl-C while it waits, is raised when all of that is done.
    """
    own = [loader for loader in loaders if loader._pid == os.getpid()]
    deadline = time.monotonic() + CLOSE_SECONDS
    # They run from the last to the first, each of them also when another raises.
    with ExitStack() as steps:
        for loader in own:
            steps.callback(loader._lease.release, _STORE_CLOSE_SECONDS)
        for loader in own:
            for part in (loader.telemetry, loader.pipeline, loader.engine):
                if part is not None:
                    steps.callback(part.join, deadline)
        for loader in own:
            steps.callback(loader._signal_close)


def _close_at_exit(loader: LoaderResources) -> None:
    # Once there is an engine: what was registered later runs earlier, and the core's own hook must find nothing to do.
    if not _open:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _open.add(loader)


def _close_all() -> None:
    close_together(list(_open))
