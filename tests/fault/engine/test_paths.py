"""Long, narrow and breaking paths to the nodes (storage.md 6.1: S7 and S8)."""

import json
import time

import pytest
from fault.engine.processes import child, read_until_told, receive
from fault.engine.ring import STALL_SLACK, EngineRing
from fault.engine.samples import Samples

from harness.cassandra.cluster import CassandraCluster
from harness.soak import IS_SOAK, repetitions, time_limit

pytestmark = pytest.mark.timeout(time_limit(900))

PATH_RATE = 12e6
ROUND_TRIP_MS = 100
BUDGET_BYTES = 64 << 20
# Share of what the machine carries (None: 4 MB/s), and connections a node where they are fixed.
LONG_PATHS: list[tuple[float | None, int | None]] = [(None, None), (0.3, None)]
if IS_SOAK:
    LONG_PATHS += [(share, lanes) for share in (None, 0.2, 0.6) for lanes in (1, 2, 8)]


def _make_uneven(ring: EngineRing) -> None:
    """One path in order, one ten times as long, one a tenth as wide, and one answer in a hundred breaks off."""
    ring.shape(rate=PATH_RATE, delay_ms=2, reset_mean_bytes=100 * ring.samples.mean_bytes, seed=7)
    ring.relays[1].set(delay_ms=20)
    ring.relays[2].set(rate=PATH_RATE / 10)


def test_s7_uneven_paths_lose_nothing_and_the_narrow_one_gets_little(ring: EngineRing) -> None:
    ring.shape(rate=PATH_RATE, delay_ms=2)
    consumer = ring.consumer(batch_size=16)
    consumer.run()
    _make_uneven(ring)
    resets = ring.count("resets")
    consumer.run()
    carried = [relay.stats().bytes_down for relay in ring.relays]
    consumer.run(repetitions(2, 20))
    shares = [relay.stats().bytes_down - before for relay, before in zip(ring.relays, carried, strict=True)]
    assert ring.count("resets") > resets
    # By its width it is worth a twentieth; a third is what it gets from someone who does not look.
    assert shares[2] < 0.2 * sum(shares), shares
    assert consumer.engine.failures() == []


def test_s7_uneven_paths_keep_the_order(ring: EngineRing) -> None:
    healthy = ring.consumer(in_order=True)
    healthy.run()
    _make_uneven(ring)
    ring.relays[2].set(rate=PATH_RATE / 3)
    uneven = ring.consumer(in_order=True)
    uneven.run()
    assert uneven.last_order == healthy.last_order
    assert uneven.engine.failures() == []


@pytest.fixture(scope="session")
def unshaped_rate(written: tuple[str, Samples], cassandra_ring_session: CassandraCluster) -> float:
    """Bytes a second that this machine carries from the ring to one consumer."""
    keyspace, samples = written
    ring = EngineRing(cassandra_ring_session, keyspace, samples)
    consumer = ring.consumer(prefetch_bytes=BUDGET_BYTES)
    consumer.run(2)
    started, carried = time.monotonic(), ring.count("bytes_down")
    consumer.run(2)
    rate = (ring.count("bytes_down") - carried) / (time.monotonic() - started)
    ring.close()
    return rate


@pytest.mark.parametrize(("share", "lanes"), LONG_PATHS)
def test_s8_the_window_finds_the_rate_of_a_long_path(
    ring: EngineRing, unshaped_rate: float, share: float | None, lanes: int | None
) -> None:
    """From 4 MB/s up to 60 % of what the machine can carry; half of that beside other tests, which take their part."""
    config = ring.config | ({"lanes": lanes} if lanes else {})
    rate = 4e6 if share is None else share * unshaped_rate
    ring.shape(rate=rate / len(ring.relays), delay_ms=ROUND_TRIP_MS / 2)
    with child(read_until_told, json.dumps(config), ring.samples, BUDGET_BYTES) as connection:
        receive(connection, seconds=120)
        started = time.monotonic()
        fastest = 0.0
        while fastest < 0.8 * rate and time.monotonic() < started + 10 * STALL_SLACK:
            fastest = max(fastest, _rate_over_a_second(ring))
        connection.send("enough")
        growth_bytes = receive(connection, seconds=120)
        ring.shape(rate=None, delay_ms=None)
        assert receive(connection, seconds=120) >= 1, "no epoch was whole"
    assert fastest >= 0.8 * rate, f"{fastest / 1e6:.1f} MB/s of {rate / 1e6:.1f}"
    assert growth_bytes <= 1.2 * BUDGET_BYTES


def _rate_over_a_second(ring: EngineRing) -> float:
    before, started = ring.count("bytes_down"), time.monotonic()
    time.sleep(1)
    return (ring.count("bytes_down") - before) / (time.monotonic() - started)
