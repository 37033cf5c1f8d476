"""All that a loader must give back: store, engine, threads."""

import os
from collections.abc import Mapping
from typing import Any

from penstock._assembly import Assembler
from penstock._engine import EngineFace, EngineOptions, StoreLease
from penstock._members import Members
from penstock._meter import Gauges, Meter
from penstock._pipeline import Pipeline
from penstock._telemetry import Telemetry
from penstock._transport import Transport


class LoaderResources:
    """Held by the loader and by its finalizer; never holds the loader itself."""

    def __init__(
        self, members: Members, assembler: Assembler, store_config: Mapping[str, Any], transport: Transport
    ) -> None:
        self.members = members
        self._assembler = assembler
        self._lease = StoreLease(store_config)
        self._transport = transport
        self._pid = os.getpid()
        self.engine: EngineFace | None = None
        self.pipeline: Pipeline | None = None
        self.telemetry: Telemetry | None = None

    def replace_engine(self, options: EngineOptions) -> None:
        """Build the engine for these options; an older one is closed."""
        self._close_engine()
        self.engine = EngineFace(self._lease.store, self.members, options)

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
            engine.close()
        if pipeline is not None:
            pipeline.close()
