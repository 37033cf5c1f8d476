"""What the relay itself costs and holds, so that no other benchmark measures it instead of what it is about.

Cost: CPU seconds of the process for each GB, against a bare copy loop (read, write, one thread a direction) between
the same two ends in the same run, interleaved. Capacity: 300 MB/s at a 150 ms round trip is a window of 45 MB.
"""

import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.bench_report import BenchReport
from harness.peers import Peer
from harness.processes import Process
from harness.relay import Relay, build_relay
from harness.run import Run

GIGABYTE = 1_000_000_000
COST_BYTES = 2 * GIGABYTE
REPETITIONS = 5
LINK_RATE = 300_000_000
ROUND_TRIP_MS = 150
LINK_SECONDS = 5.0


def main() -> None:
    run = Run()
    try:
        with Peer(stream) as peer:
            report = BenchReport("relay")
            measure_cost(run, peer, report)
            measure_link(run, peer, report)
        report.print()
    finally:
        run.close()


def stream(connection: socket.socket) -> None:
    """Answers a count of bytes with that many of them, again and again."""
    block = bytes(1 << 20)
    while request := connection.recv(8):
        left = int.from_bytes(request, "big")
        while left:
            sent = connection.send(memoryview(block)[:left])
            left -= sent


def measure_cost(run: Run, peer: Peer, report: BenchReport) -> None:
    bare, bare_address = start_bare_copy(run, peer)
    plain = Relay(run, target=peer.endpoint)
    # Wide enough never to be the limit here: what is measured is the work of the clocks.
    shaped = Relay(run, target=peer.endpoint, rate=5e9, connection_rate=5e9, delay_ms=0.5, window_bytes=256 << 20)
    ways = {
        "bare copy": (bare, bare_address),
        "relay": (plain.process, plain.address),
        "relay, shaped": (shaped.process, shaped.address),
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for process, address in ways.values():
        download(address, COST_BYTES // 10)
        assert process.is_running
    for _ in range(REPETITIONS):
        for name, (process, address) in ways.items():
            costs[name].append(cpu_seconds(process, partial(download, address, COST_BYTES)))
    per_gigabyte = {name: [each * GIGABYTE / COST_BYTES for each in values] for name, values in costs.items()}
    for name, values in per_gigabyte.items():
        report.add(f"CPU, {name}", values, unit="core-s/GB")
    for name in ("relay", "relay, shaped"):
        ratios = [each / base for each, base in zip(per_gigabyte[name], per_gigabyte["bare copy"], strict=True)]
        report.add(f"{name} / bare copy", ratios, unit="x", reach="<= 2")
    for process, _ in ways.values():
        process.kill()


def measure_link(run: Run, peer: Peer, report: BenchReport) -> None:
    """One connection, no window: all of rate x delay must be inside the relay for the link to be full."""
    relay = Relay(run, target=peer.endpoint, rate=LINK_RATE, delay_ms=ROUND_TRIP_MS)
    rates: list[float] = []
    costs: list[float] = []
    for _ in range(REPETITIONS):
        seconds = 0.0

        def once() -> None:
            nonlocal seconds
            seconds = download(relay.address, int(LINK_RATE * LINK_SECONDS))

        costs.append(cpu_seconds(relay.process, once) / LINK_SECONDS / LINK_RATE * GIGABYTE)
        # A round trip passes before the first byte: the request on its way there, the answer on its way back.
        rates.append(LINK_RATE * LINK_SECONDS / (seconds - 2 * ROUND_TRIP_MS / 1e3))
    held = relay.stats().peak_queued_bytes
    report.add(
        f"rate at {LINK_RATE / 1e6:.0f} MB/s, 2 x {ROUND_TRIP_MS} ms", [each / 1e6 for each in rates], unit="MB/s"
    )
    report.add("rate / rate asked for", [each / LINK_RATE for each in rates], unit="x", reach=">= 0.95")
    report.add("CPU at that rate", costs, unit="core-s/GB")
    product = LINK_RATE * ROUND_TRIP_MS / 1e3
    report.add("held at once / bandwidth-delay product", held / product, unit="x", reach=">= 0.95")
    relay.stop()


def start_bare_copy(run: Run, peer: Peer) -> tuple[Process, tuple[str, int]]:
    place = run.folder / "bare-copy.address"
    address = f"{run.block.address(61)}:0"
    process = run.spawn("bare-copy", [build_relay() / "bare-copy", address, peer.endpoint, place])
    process.wait_ready(place.exists, seconds=30, every_seconds=0.01)
    host, _, port = place.read_text().rpartition(":")
    return process, (host, int(port))


def download(address: tuple[str, int], length: int) -> float:
    """Seconds to receive this many bytes over one connection."""
    buffer = bytearray(1 << 20)
    started = time.monotonic()
    with socket.create_connection(address) as connection:
        connection.sendall(length.to_bytes(8, "big"))
        while length:
            received = connection.recv_into(buffer)
            if received == 0:
                raise ConnectionError("the relay closed the connection early")
            length -= received
    return time.monotonic() - started


def cpu_seconds(process: Process, work: Callable[[], object]) -> float:
    before = process.cpu_seconds
    work()
    return process.cpu_seconds - before


if __name__ == "__main__":
    main()
