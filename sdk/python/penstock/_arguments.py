"""The arguments of a loader, checked before anything is asked of a server."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from penstock._errors import ConfigError

OUTPUTS = ("torch", "numpy")
LAST_BATCHES = ("drop", "partial", "pad")
ON_ERRORS = ("raise", "skip", "replace")

# As in the native store (`MOST_LANES_A_NODE`), which says why: asked for here, the error names the argument.
MOST_LANES = 64

_EXPLAINED = {
    "num_workers": "reading and decoding run in native and Python threads of this process",
    "prefetch_factor": "read-ahead is counted in bytes: use prefetch_bytes",
    "timeout": "deadlines and retries are the engine's own",
    "persistent_workers": "there are no worker processes",
    "multiprocessing_context": "there are no worker processes",
    "pin_memory_device": "pin_memory=True is enough",
}
_NOT_YET = {
    "collate_fn": "batches are made by the loader; change them in the loop or stack lists there",
    "transform": "apply it to the batch in the loop",
}
_NEVER = {
    "sampler": "the order comes from shuffle, seed and the epoch",
    "batch_sampler": "the order comes from shuffle, seed and the epoch",
    "generator": "pass seed=",
    "worker_init_fn": "there are no worker processes",
}
# A year; what is longer overflows the clocks below.
_MOST_WAIT_SECONDS = 365 * 86_400
_explained_already: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderArguments:
    """What the user asked for; defaults that depend on the world are still None."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    pin_memory: bool
    in_order: bool
    seed: int
    fields: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    decode: str | None
    output: str
    rank: int | None
    world_size: int | None
    last_batch: str | None
    on_error: str
    max_failed_share: float
    max_displacement: int
    prefetch_bytes: int | None
    window_bytes: int | None
    lanes: int | None
    store_wait_seconds: float
    run: str | None
    has_telemetry: bool
    delivered_log: str | os.PathLike[str] | None

    @classmethod
    def checked(
        cls,
        *,
        torch_arguments: Mapping[str, Any],
        fields: Sequence[str] | None,
        columns: Sequence[str] | None,
        last_batch: str | None,
        drop_last: bool,
        **rest: Any,
    ) -> Self:
        """Arguments that make sense together; raises ConfigError that says which do not."""
        _explain_torch_arguments(torch_arguments)
        arguments = cls(
            fields=_names(fields, "fields"),
            columns=_names(columns, "columns"),
            last_batch=_last_batch(last_batch, drop_last=drop_last),
            drop_last=drop_last,
            **rest,
        )
        arguments._check()
        return arguments

    def effective_last_batch(self, world_size: int) -> str:
        """The policy for the last batch, which by default depends on the number of ranks."""
        return self.last_batch or ("partial" if world_size == 1 else "pad")

    def _check(self) -> None:
        _require_int("batch_size", self.batch_size, least=1)
        _require_int("seed", self.seed, least=0, below=1 << 64)
        _require_int("max_displacement", self.max_displacement, least=1, below=1 << 63)
        for name in ("prefetch_bytes", "window_bytes"):
            if (count := getattr(self, name)) is not None:
                _require_int(name, count, least=1, below=1 << 64)
        if self.lanes is not None:
            _require_int("lanes", self.lanes, least=1, below=MOST_LANES + 1)
        _require_number("max_failed_share", self.max_failed_share, most=1)
        _require_number("store_wait_seconds", self.store_wait_seconds, most=_MOST_WAIT_SECONDS)
        if self.on_error not in ON_ERRORS:
            raise ConfigError(f"on_error={self.on_error!r}: expected one of {', '.join(map(repr, ON_ERRORS))}")
        if self.decode not in ("auto", None):
            raise ConfigError(f"decode={self.decode!r}: expected 'auto' or None (the stored bytes)")
        if self.output not in OUTPUTS:
            raise ConfigError(f"output={self.output!r}: expected one of {', '.join(map(repr, OUTPUTS))}")
        if not isinstance(self.delivered_log, str | os.PathLike | None):
            raise ConfigError(f"delivered_log={self.delivered_log!r}: expected the path of a file")
        if self.pin_memory and self.output != "torch":
            raise ConfigError("pin_memory=True needs output='torch': numpy arrays cannot be pinned")


def _require_int(name: str, value: object, *, least: int, below: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}: expected a whole number")
    if value < least or (below is not None and value >= below):
        limit = f"at least {least}" if below is None else f"from {least} to {below - 1}"
        raise ConfigError(f"{name} is {value}: expected {limit}")


def _require_number(name: str, value: object, *, most: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise ConfigError(f"{name} is {value!r}: expected a number from 0 to {most}")


def _names(names: Sequence[str] | None, argument: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str):
        raise ConfigError(f"{argument}={names!r}: expected a list of names, like [{names!r}]")
    if len(set(names)) != len(names):
        raise ConfigError(f"{argument}={list(names)!r} has a name twice")
    return tuple(names)


def _last_batch(last_batch: str | None, *, drop_last: bool) -> str | None:
    if last_batch is not None and last_batch not in LAST_BATCHES:
        raise ConfigError(f"last_batch={last_batch!r}: expected one of {', '.join(map(repr, LAST_BATCHES))}")
    if drop_last and last_batch not in (None, "drop"):
        raise ConfigError(f"drop_last=True and last_batch={last_batch!r} contradict each other: give one of them")
    return "drop" if drop_last else last_batch


def _explain_torch_arguments(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name in _NOT_YET or name in _NEVER:
            if value is not None:
                reason = _NOT_YET.get(name) or _NEVER[name]
                yet = " yet" if name in _NOT_YET else ""
                raise ConfigError(f"{name} is not taken by this loader{yet}: {reason}")
        elif name not in _EXPLAINED:
            raise TypeError(f"loader() got an unexpected keyword argument {name!r}")
        elif value and name not in _explained_already:
            _explained_already.add(name)
            warnings.warn(f"{name}={value!r} has no effect: {_EXPLAINED[name]}", UserWarning, stacklevel=4)
