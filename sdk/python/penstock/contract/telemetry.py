"""What a loader tells the server about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Self

POINT_INTERVAL_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPoint:
    """One measurement: counters are deltas over `seconds`; epoch, step, steps and the gauges are current values."""

    at: datetime
    seconds: float
    epoch: int
    step: int
    steps: int
    samples: int
    bytes: int
    batches: int
    wait_seconds: float
    decode_seconds: float
    ready_batches: int
    window_bytes: int
    inflight_bytes: int
    request_p50_ms: float
    request_p99_ms: float
    retries: int
    errors: int

    def to_json(self) -> dict[str, str | int | float]:
        """The JSON object of this point; the time is RFC 3339 in UTC."""
        document: dict[str, str | int | float] = {name: getattr(self, name) for name in (*_INT_NAMES, *_FLOAT_NAMES)}
        document["at"] = self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return {field.name: document[field.name] for field in fields(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """Read a point; raises ValueError that names the member that is missing or wrong."""
        at = document.get("at")
        if not isinstance(at, str):
            msg = f"at: expected an RFC 3339 time, got {at!r}"
            raise ValueError(msg)  # noqa: TRY004 (one kind of error for the caller)
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            msg = f"at: {at!r} has no time zone"
            raise ValueError(msg)
        ints = {name: int(_number(document, name, is_whole=True)) for name in _INT_NAMES}
        floats = {name: float(_number(document, name, is_whole=False)) for name in _FLOAT_NAMES}
        return cls(at=moment.astimezone(UTC), **ints, **floats)  # type: ignore[arg-type]  # names are the fields' own


_INT_NAMES = (
    "epoch", "step", "steps", "samples", "bytes", "batches",
    "ready_batches", "window_bytes", "inflight_bytes", "retries", "errors",
)  # fmt: skip
_FLOAT_NAMES = ("seconds", "wait_seconds", "decode_seconds", "request_p50_ms", "request_p99_ms")


def _number(document: Mapping[str, object], name: str, *, is_whole: bool) -> int | float:
    value = document.get(name)
    is_number = isinstance(value, int) or (not is_whole and isinstance(value, float))
    # A bool is an int to Python, and NaN fails every comparison.
    if not is_number or isinstance(value, bool) or not 0 <= value < float("inf"):  # type: ignore[operator]
        msg = f"{name}: expected a {'whole ' if is_whole else ''}number of at least 0, got {value!r}"
        raise ValueError(msg)
    return value  # type: ignore[return-value]  # narrowed by is_number
