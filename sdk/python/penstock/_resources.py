"""All that belongs to one pinned subset and must be given back: store, engine, threads."""

import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from penstock._arguments import LoaderArguments
from penstock._assembly import Assembler
from penstock._engine import EngineFace, EngineOptions, StoreLease, default_prefetch_bytes
from penstock._failures import DecodeFailures, SampleFailure
from penstock._members import open_members
from penstock._meter import Gauges, Meter
from penstock._models import LoaderPlan
from penstock._pipeline import Pipeline
from penstock._ranks import Ranks
from penstock._reach import reachable_config
from penstock._state import Pin
from penstock._subset import LoadedSubset, chosen_columns, chosen_fields
from penstock._telemetry import Telemetry
from penstock._transport import Transport


class LoaderResources:
    """Held by the loader and by its finalizer; never holds the loader itself."""

    def __init__(self, plan: LoaderPlan, arguments: LoaderArguments, transport: Transport) -> None:
        self._arguments = arguments
        self._transport = transport
        self._dataset_id = UUID(plan.dataset.id).bytes
        config = reachable_config(plan)
        self.members = open_members(plan, transport)
        fields = chosen_fields(self.members.header, arguments.fields)
        columns = chosen_columns(self.members.header, arguments.columns, fields=fields)
        self._field_names = tuple(field.name for field in fields)
        self._undecodable = DecodeFailures(arguments.max_failed_share)
        self._assembler = Assembler(
            self.members,
            fields=fields,
            columns=columns,
            decode=arguments.decode,
            output=arguments.output,
            on_error=arguments.on_error,
            failures=self._undecodable,
        )
        self.pin = Pin.of(plan)
        self.subset = LoadedSubset.of(plan)
        self.categories = {column.name: column.values for column in columns if column.values is not None}
        self._lease = StoreLease(config)
        self._pid = os.getpid()
        self._unread: list[SampleFailure] = []
        self.engine: EngineFace | None = None
        self.pipeline: Pipeline | None = None
        self.telemetry: Telemetry | None = None

    def replace_engine(self, ranks: Ranks, *, live_loaders: int) -> EngineFace:
        """Build the engine for these ranks; an older one is closed."""
        self._close_engine()
        self.engine = EngineFace(self._lease.store, self.members, self._options(ranks, live_loaders))
        return self.engine

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
        gauges = Gauges() if engine is None else Gauges.from_stats(engine.stats())
        return gauges.with_ready(0 if pipeline is None else pipeline.ready_batches)

    def failures(self) -> list[SampleFailure]:
        """Samples that could not be read or decoded, also after closing."""
        current = [] if self.engine is None else self.engine.failures()
        return sorted([*self._unread, *current, *self._undecodable.to_list()], key=lambda failure: failure.epoch)

    def close(self) -> None:
        """Give everything back; in a forked child nothing of it exists."""
        if self._pid != os.getpid():
            return
        # First, while the engine still has numbers for the last point.
        if self.telemetry is not None:
            self.telemetry.stop()
        self._close_engine()
        self._assembler.close()
        self._lease.release()

    def _close_engine(self) -> None:
        engine, pipeline = self.engine, self.pipeline
        self.engine = self.pipeline = None
        if engine is not None:
            self._unread += engine.failures()
            engine.close()
        if pipeline is not None:
            pipeline.close()

    def _options(self, ranks: Ranks, live_loaders: int) -> EngineOptions:
        arguments = self._arguments
        batch_bytes = self.members.batch_bytes(self._field_names, arguments.batch_size)
        share = default_prefetch_bytes(ranks.local_world_size, live_loaders, batch_bytes=batch_bytes)
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
            prefetch_bytes=arguments.prefetch_bytes or share,
            window_bytes=arguments.window_bytes,
            store_wait_seconds=arguments.store_wait_seconds,
            form="list" if self._assembler.takes_lists else "arena",
            split_digest=self.subset.digest,
        )
