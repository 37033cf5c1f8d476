"""The native core of Penstock: stores, digests and the engine."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol, Self, TypedDict, final

from typing_extensions import Buffer, CapsuleType

__all__ = [
    "Arena",
    "Batch",
    "Engine",
    "Order",
    "SampleBytes",
    "Store",
    "__version__",
    "blake3",
    "digest_in_id_order",
    "row_hashes",
    "xxh3_64",
]

__version__: str

class _Array(Protocol):
    """A numpy array, whose buffer protocol type checkers see from Python 3.12 only."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Bytes = Buffer | _Array

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: CapsuleType | None = None, /) -> CapsuleType: ...

def blake3(data: _Bytes, /) -> bytes:
    """The BLAKE3 hash of a buffer: 32 bytes."""

def xxh3_64(data: _Bytes, /) -> int:
    """The XXH3 checksum of a buffer: an unsigned number of 64 bits."""

def row_hashes(table: _ArrowStream, /) -> bytes:
    """The canonical hash of every row of an Arrow table: 16 bytes a row.

    `table` is anything with `__arrow_c_stream__`: a pyarrow table or record batch, a polars frame.
    Raises ValueError for a column whose type has no canonical encoding.
    """

def digest_in_id_order(ids: _Bytes, families: Sequence[tuple[str, _Bytes]], /) -> bytes:
    """The digest of a version: over ids and the row hashes of its families, in the order of the ids.

    `ids` has 16 bytes a row; `families` are pairs of a name and row hashes in the same order as the ids.
    """

@final
class Store:
    """An open store of objects: Cassandra or ScyllaDB, LMDB in a folder, or memory for tests.

    All methods release the interpreter while they wait, can be called from many threads, and end early on Ctrl-C.
    `table` is "samples" (bytes of samples) or "objects" (Penstock's own); ids are the 16 bytes of a UUID.
    Raises `StoreUnavailable`, `StoreRefused`, `SampleCorrupt`, `StoreFull`, `ForkedProcess` or `EngineClosed` of
    `penstock._errors`.
    """

    @staticmethod
    def open(config_json: str) -> Store:
        """Opens the store that a JSON configuration describes. Raises `ConfigError` or `StoreUnavailable`.

        `{"kind": "lmdb", "path": ..., "is_read_only"?, "first_map_bytes"?}`,
        `{"kind": "cql", "contact_points": [], "local_dc": ..., "keyspace": ..., "username"?, "password"?, "ca_pem"?,
        "lanes"?}`, where lanes are connections a node (found by itself when absent),
        or `{"kind": "memory", "name": ..., "faults"?}`, where faults are a plan of `seed`, `delay_ms` (least, most),
        `slow_share`, `slow_ms`, `unavailable_share`, `missing_share`, `corrupt_share`, `panic_share`, `faulty_reads`.
        """

    @property
    def kind(self) -> Literal["lmdb", "cql", "memory"]:
        """`lmdb`, `cql` or `memory`."""

    def write(
        self, table: str, dataset_id: bytes, objects: Sequence[tuple[bytes, Sequence[tuple[str, _Bytes]]]]
    ) -> None:
        """Writes objects and returns when all of them are durable. Writing them again changes nothing."""

    def read(
        self, table: str, dataset_id: bytes, object_ids: Sequence[bytes], fields: Sequence[str] | None = None
    ) -> list[dict[str, bytes] | None]:
        """Reads objects. `None` stands for an object that is absent, or has not all of the fields asked for. Raises
        `ValueError` when `fields` is empty or has a name twice.
        """

    def verify(
        self, table: str, dataset_id: bytes, expected: Sequence[tuple[bytes, str, int, int]]
    ) -> list[str | None]:
        """Compares stored bytes with what a manifest says about them: `None`, or what is wrong.

        `expected` has tuples of object id, field, size in bytes and XXH3 checksum.
        """

    def delete(self, table: str, dataset_id: bytes, object_ids: Sequence[bytes]) -> None:
        """Removes objects with all of their fields; those that are absent are passed over."""

    def scan(self, table: str, dataset_id: bytes) -> list[bytes]:
        """The ids of all objects of a dataset, sorted. Reads keys only, but all of them."""

    def ping(self) -> None:
        """Returns when the store answers and has its tables, raises when it does not."""

    def counters(self) -> dict[str, int]:
        """What the store has had to do beyond plain reads: `retries`, `escalations` to a quorum, `hedges` (reads asked
        for a second time because others were faster), `hedge_wins` (those that the second won), `silences` (reads
        moved off a connection that was not heard any more), `probes` (copies of reads that only show how a connection
        is), `damaged` (answers, or values on a disk, that were found damaged) and planned `faults`.
        """

    def close(self, patience_seconds: float | None = None) -> None:
        """Lets go of connections and files; closing twice is fine. With `patience_seconds` it goes on by itself after
        that time.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

# engine

class _Stage(TypedDict):
    """Durations of one stage. `buckets` are pairs of upper end in milliseconds and count, empty ones left out."""

    count: int
    sum_ms: float
    max_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    buckets: list[tuple[float, int]]

class _LaneStats(TypedDict):
    """One connection to a node: `delay_ms` is the smallest of the last seconds, `rate` in bytes a second.

    `answer` times all its answers, `patience_ms` is how long a read waits before it is asked for on another lane too
    (None while too little is known), `shard` the part of a ScyllaDB node that it ends in.
    """

    node: str
    state: str
    delay_ms: float
    rate: float
    outstanding: int
    outstanding_bytes: int
    answers: int
    bytes: int
    failures: int
    hedged: int
    patience_ms: float | None
    shard: int | None
    answer: _Stage

class _EngineStats(TypedDict):
    """Counters since the engine was made, gauges of this moment, and a histogram for each stage: see docs/stats.md."""

    samples: int
    bytes: int
    batches: int
    acknowledged: int
    requests: int
    retries: int
    errors: int
    lost: int
    skipped: int
    replaced: int
    discarded: int
    parks: int
    stalls: int
    wait_seconds: float
    epoch: int
    step: int
    steps: int
    window_bytes: int
    prefetch_bytes: int
    inflight_bytes: int
    inflight_samples: int
    arrived_samples: int
    ready_batches: int
    held_bytes: int
    peak_held_bytes: int
    peak_inflight_bytes: int
    escalations: int
    hedges: int
    hedge_wins: int
    silences: int
    probes: int
    damaged: int
    lanes: int
    lane_stats: list[_LaneStats]
    arena_idle_bytes: int
    arena_lent_bytes: int
    snapshot_ms: float
    request: _Stage
    wait: _Stage
    verify: _Stage
    copy: _Stage
    deliver: _Stage

@final
class Order:
    """The order of one epoch: a permutation of `range(n)` that every rank and machine computes alike."""

    ALGORITHM: ClassVar[str]
    def __new__(cls, n: int, *, seed: int, epoch: int, shuffle: bool = True) -> Self: ...
    def __len__(self) -> int: ...
    def at(self, index: int) -> int: ...
    def inverse(self, position: int) -> int: ...

@final
class Engine:
    """A running stream of one subset into this process: every sample of an epoch exactly once, as batches.

    Each of `parts` has the sample ids (16 bytes each) and for each field object ids (16 bytes each), sizes and
    checksums (little-endian u64 each). Read-only buffers are used in place, others are copied.
    """

    def __new__(
        cls,
        store: Store,
        *,
        dataset_id: bytes,
        fields: list[str],
        parts: list[tuple[Buffer, list[tuple[Buffer, Buffer, Buffer]]]],
        batch_size: int,
        shuffle: bool,
        seed: int,
        rank: int,
        world_size: int,
        last_batch: str,
        in_order: bool,
        window_bytes: int | None,
        prefetch_bytes: int,
        on_error: str = "raise",
        max_displacement: int | None = None,
        max_failed_share: float = 0.01,
        store_wait_seconds: float = 60.0,
        prefetch_next_epoch: bool = True,
        form: str = "arena",
        split_digest: str = "",
        is_prefetch_fixed: bool = True,
        idle_seconds: float = 60.0,
    ) -> Self: ...
    @property
    def sample_count(self) -> int: ...
    def steps(self) -> int: ...
    def start_epoch(self, epoch: int) -> None: ...
    def next_batch(self) -> Batch | None:
        """The next batch, or None at the end of the epoch.

        A StoreError stands in the place of a batch: acknowledge its `seq`, and the next call goes on behind it. Its
        `sample_id` and `lost_ids` are all samples that the batch would have had. Any other error stays.
        """
    def interrupt(self) -> None:
        """Lets the call of `next_batch` under way in another thread, or else the next one before the next
        `start_epoch`, give None at once.
        """
    def ack(self, seq: int) -> None: ...
    def state(self) -> str:
        """Where the acknowledged batches stand, as one line of text; batches not acknowledged come again."""
    def start_of(self, epoch: int) -> str:
        """The state before the first sample of an epoch."""
    def resume(self, state: str) -> tuple[int, int, int]:
        """Lets the next `start_epoch` of the state's epoch go on there; returns epoch, steps done, steps left."""
    @staticmethod
    def merge_states(states: list[str], *, allow_skew: bool = False) -> str:
        """The states of all ranks as one that fits any number of ranks."""
    def stats(self) -> _EngineStats: ...
    def failures(self) -> list[tuple[int, bytes, list[str], str | None, int | None, str, bytes | None]]:
        """What acknowledged steps did not deliver: epoch, sample id, fields, node, attempts, reason, lost with.

        The last thousand samples that could not be read, then the last 65,536 sound ones whose batch an error took the
        place of; those name the sample that they were lost with instead of a reason.
        """
    def set_prefetch_bytes(self, prefetch_bytes: int) -> int:
        """The bytes that may be held ahead from now on, with those on their way. Returns what is in force: a store on
        this machine needs less, and no sample may be larger.
        """
    def close(self, patience_seconds: float | None = None) -> None:
        """Ends all work; batches that were handed out stay whole. Waits until that is done, for 1.5 seconds at the most
        or as long as is said. Closing twice is fine.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None: ...

@final
class Batch:
    """One step of a rank: ids, positions and flags of its samples, and for each field an arena or a list."""

    @property
    def seq(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ids(self) -> bytes: ...
    @property
    def positions(self) -> bytes: ...
    @property
    def valid(self) -> bytes: ...
    def __len__(self) -> int: ...
    def field(self, name: str) -> tuple[Arena, bytes]:
        """The arena of a field, and where its samples start in it: little-endian u64, one more than samples."""
    def samples(self, name: str) -> list[SampleBytes]:
        """The samples of a field, each for itself; of engines made with `form="list"`."""

@final
class SampleBytes:
    """The bytes of one field of one sample, in the memory in which they came from the store: a read-only buffer.

    What came in several chunks was joined, and what lies in LMDB was read into a block of its batch. Several samples
    may share one piece of memory, which is given back when the last of them is gone.
    """

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Arena:
    """The bytes of one field of a batch, end to end, in writable page-aligned memory.

    Supports the buffer protocol and `DLPack`: `memoryview(arena)`, `numpy.frombuffer(arena, "u1")`,
    `torch.from_dlpack(arena)`. The memory is used again only when this object, its batch and every view are gone.
    """

    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
