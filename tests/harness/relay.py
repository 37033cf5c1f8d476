"""The handle of the relay: a program between client and server that behaves like a long, narrow or broken network."""

import fcntl
import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.processes import Process
from harness.programs import find_cargo
from harness.run import Run

_CRATE = Path(__file__).resolve().parents[1] / "relay"
_FREE_HOST = 51

Setting = float | int | bool | list[int] | None


@dataclass(frozen=True)
class RelayStats:
    """What the relay has done since it started; bytes are counted when they are handed on."""

    accepted: int
    open: int
    refused: int
    resets: int
    truncations: int
    flips: int
    swaps: int
    bytes_up: int
    bytes_down: int
    queued_bytes: int
    peak_queued_bytes: int
    connections: Sequence[Mapping[str, object]]


class Relay:
    """One relay in front of one target (or of several that share the link).

    Settings, at the start and in `set` (None or 0 = off); rates are bytes a second, each direction has its own link:

    - `rate` shared by all connections, `connection_rate` for each of them
    - `delay_ms` one way, `jitter_ms` added at random from `seed`; the order of bytes is kept
    - `window_bytes` in flight a connection and direction, given back one round trip after they left
    - `first_byte_ms` extra delay of a connection's first answer
    - `reset_after_bytes`, `truncate_after_bytes` (then closed), `stall_after_bytes`, `flip_after_bytes` (one bit),
      `swap_after_bytes` (of two CQL results that come together each goes to the other's request): position in what a
      connection carries; `..._mean_bytes` instead: random positions, flip and swap again and again
    - `direction` in which those happen: "down" (answers, the default) or "up"
    - `is_stalled` nothing moves, connections are still accepted; goes on when cleared
    - `is_half_open` bytes are swallowed and nobody hears of a close: such connections stay dead
    - `max_connections` more are reset at once (0 = all, None = no limit)
    - `slow_every` k-th connection has `slow_delay_factor` times the delay and at most `slow_rate`
    - `slow_connections` likewise, named by the index that `stats` gives them
    """

    def __init__(
        self, run: Run, *, target: str | Sequence[str], listen: str | None = None, **settings: Setting | str
    ) -> None:
        targets = [target] if isinstance(target, str) else list(target)
        self._address = run.block.address(_FREE_HOST) if listen is None else listen.rpartition(":")[0]
        first = listen or f"{self._address}:0"
        routes = [f"{first if index == 0 else f'{self._address}:0'}={each}" for index, each in enumerate(targets)]
        number = sum(process.name.startswith("relay-") for process in run.processes)
        report = run.folder / f"relay-{number}.json"
        argv: list[str | Path] = [relay_program(), "--control", f"{self._address}:0", "--report", report]
        for route in routes:
            argv += ["--route", route]
        self.process: Process = run.spawn(f"relay-{number}", [*argv, "--settings", json.dumps(settings)])
        self.process.wait_ready(report.exists, seconds=30, every_seconds=0.01)
        addresses = json.loads(report.read_text())
        self.endpoints: list[str] = addresses["routes"]
        self.control_address: str = addresses["control"]

    @property
    def endpoint(self) -> str:
        """`address:port` to connect to."""
        return self.endpoints[0]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.endpoint.rpartition(":")
        return host, int(port)

    def set(self, **settings: Setting | str) -> None:
        """Change these settings and leave the others as they are, also for connections that are open."""
        self._ask({"set": settings})

    def clear(self) -> None:
        """Back to a plain copy."""
        self._ask("clear")

    def reset_all(self) -> None:
        """Reset every open connection now."""
        self._ask("reset")

    def stats(self) -> RelayStats:
        answer = self._ask("stats")
        return RelayStats(**answer["stats"])  # type: ignore[arg-type]  # the relay's own structure

    def stop(self) -> None:
        self.process.kill()

    def _ask(self, request: str | Mapping[str, object]) -> dict[str, Mapping[str, object]]:
        return ask_relay(self.control_address, request)


def ask_relay(control_address: str, request: str | Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Talk to a relay, also to one of another process: `"stats"`, `"clear"`, `"reset"` or `{"set": {...}}`."""
    host, _, port = control_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("r") as lines:
            answer: dict[str, Mapping[str, object]] = json.loads(lines.readline())
    if "error" in answer:
        raise HarnessError(f"the relay refused {request}: {answer['error']}")
    return answer


def relay_program() -> Path:
    """The relay, built once; cargo decides whether there is anything to do."""
    return build_relay() / "penstock-relay"


def build_relay() -> Path:
    """The folder with the relay's programs."""
    target = _CRATE / "target"
    target.mkdir(exist_ok=True)
    with (target / ".harness-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "release" / "penstock-relay").exists():
            sys.stderr.write("harness: building the relay, once in this checkout (about half a minute)\n")
        argv = [str(find_cargo()), "build", "--release", "--locked", "--quiet"]
        done = subprocess.run(argv, cwd=_CRATE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"the relay in {_CRATE} does not build:\n{done.stderr[-3000:]}")
    return target / "release"
