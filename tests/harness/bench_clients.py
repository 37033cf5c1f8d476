"""Clients that read the samples of a benchmark, each in a process of its own so that its CPU can be told apart."""

import asyncio
import json
import multiprocessing
import ssl
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import acsylla
from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import DCAwareRoundRobinPolicy
from cassandra.query import tuple_factory

from harness.bench_cluster import BenchCluster
from harness.bench_dataset import FIELD, BenchDataset, read_epoch
from penstock._native import Store

_IN_FLIGHT = 128
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Target:
    """All that a client has to know."""

    store_config: dict[str, Any]
    ca_file: Path | None
    dataset: BenchDataset

    @classmethod
    def of(cls, cluster: BenchCluster) -> "Target":
        config = cluster.cassandra.store_config(cluster.keyspace)
        return cls(config, cluster.cassandra.ca_file, cluster.dataset)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.store_config["contact_points"][0].rpartition(":")
        return host, int(port)

    @property
    def statement(self) -> str:
        """The least that a client of this table can ask for."""
        return (
            f"SELECT data FROM {self.store_config['keyspace']}.samples "
            "WHERE dataset_id = ? AND object_id = ? AND field = ? AND chunk = 0"
        )

    @cached_property
    def keys(self) -> list[list[object]]:
        """The values of the statement for each sample, made before anything is measured."""
        dataset_id = uuid.UUID(bytes=self.dataset.dataset_id)
        return [[dataset_id, uuid.UUID(bytes=each), FIELD] for each in self.dataset.object_ids]


class Client(Protocol):
    def read(self, count: int) -> int:
        """Reads so many samples and returns their bytes."""


@dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    seconds: float
    read_bytes: int

    @property
    def cpu_per_gigabyte(self) -> float:
        return self.cpu_seconds / self.read_bytes * 1e9

    @property
    def megabytes_per_second(self) -> float:
        return self.read_bytes / self.seconds / 1e6


class ClientProcess:
    """A client that reads when it is told to, and says what that cost it."""

    def __init__(self, make: Callable[[Target], Client], target: Target) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, make, target), daemon=True)
        self._process.start()
        theirs.close()

    def read(self, count: int) -> Usage:
        self._pipe.send(count)
        usage: Usage = self._pipe.recv()
        return usage

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        self._process.kill()


def _serve(pipe: Connection, make: Callable[[Target], Client], target: Target) -> None:
    client = make(target)
    while True:
        try:
            count = pipe.recv()
        except EOFError:
            return
        cpu, clock = time.process_time(), time.perf_counter()
        read_bytes = client.read(count)
        pipe.send(Usage(time.process_time() - cpu, time.perf_counter() - clock, read_bytes))


class EngineClient:
    """The engine, to views of its arenas."""

    form = "arena"

    def __init__(self, target: Target) -> None:
        self._store = Store.open(json.dumps(target.store_config))
        # An epoch read ahead would be paid for by the next measurement.
        self._engine = target.dataset.engine(self._store, prefetch_next_epoch=False, form=self.form)
        self._size = target.dataset.size
        self._epoch = 0

    def read(self, count: int) -> int:
        read_bytes = 0
        for _ in range(-(-count // self._size)):
            read_bytes += read_epoch(self._engine, self._epoch, self.form)
            self._epoch += 1
        return read_bytes


class EngineListClient(EngineClient):
    """The engine, to samples in the memory in which they came: what a loader takes that decodes them."""

    form = "list"


class AcsyllaClient:
    """acsylla (the C++ driver under asyncio), to Python bytes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        host, port = self._target.address
        config = self._target.store_config
        secure: dict[str, Any] = {}
        if self._target.ca_file is not None:
            secure = {"ssl_enabled": True, "ssl_trusted_cert": self._target.ca_file.read_text()}
        cluster = acsylla.create_cluster(
            [host], port=port, username=config["username"], password=config["password"], log_level="disabled", **secure
        )
        self._session = await cluster.create_session(keyspace=config["keyspace"])
        self._prepared = await self._session.create_prepared(self._target.statement)

    def read(self, count: int) -> int:
        return self._loop.run_until_complete(self._read(count))

    async def _read(self, count: int) -> int:
        keys = islice(cycle(self._target.keys), count)

        async def worker() -> int:
            read_bytes = 0
            for key in keys:
                result = await self._session.execute(self._prepared.bind(key))
                read_bytes += len(result.first().column_value("data"))
            return read_bytes

        return sum(await asyncio.gather(*(worker() for _ in range(_IN_FLIGHT))))


class PythonDriverClient:
    """cassandra-driver, to Python bytes."""

    def __init__(self, target: Target) -> None:
        host, port = target.address
        config = target.store_config
        profile = ExecutionProfile(
            load_balancing_policy=DCAwareRoundRobinPolicy(local_dc=config["local_dc"]),
            consistency_level=ConsistencyLevel.LOCAL_ONE,
            row_factory=tuple_factory,
        )
        self._target = target
        self._cluster = Cluster(
            [host],
            port=port,
            protocol_version=4,
            compression=False,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=PlainTextAuthProvider(config["username"], config["password"]) if config["username"] else None,
            ssl_context=ssl.create_default_context(cafile=target.ca_file) if target.ca_file else None,
        )
        self._session = self._cluster.connect(config["keyspace"])
        self._prepared = self._session.prepare(target.statement)

    def read(self, count: int) -> int:
        keys = islice(cycle(self._target.keys), count)
        answers = execute_concurrent_with_args(
            self._session, self._prepared, keys, concurrency=_IN_FLIGHT, results_generator=True
        )
        return sum(len(answer.result_or_exc.one()[0]) for answer in answers)
