"""Every way in which the relay can be slow or broken. Lower bounds are exact, upper bounds have three times slack."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.errors import HarnessError
from harness.peers import Peer, echo, sink, source
from harness.relay import Relay

MakeRelay = Callable[..., Relay]
PATTERN = bytes(range(251)) * 8000


@pytest.fixture
def echo_peer() -> Iterator[Peer]:
    with Peer(echo) as peer:
        yield peer


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(relay.address, timeout=30)


def receive(connection: socket.socket, length: int) -> bytes:
    """`length` bytes, fewer when the connection ends before."""
    parts: list[bytes] = []
    while length and (data := connection.recv(min(length, 1 << 16))):
        parts.append(data)
        length -= len(data)
    return b"".join(parts)


def round_trip_seconds(connection: socket.socket, data: bytes = b"ping") -> float:
    started = time.monotonic()
    connection.sendall(data)
    assert receive(connection, len(data)) == data
    return time.monotonic() - started


def attempt(relay: Relay) -> None:
    """Connect and use it; a reset may show in either step."""
    with connect(relay) as connection:
        round_trip_seconds(connection)


def read_to_the_end(connection: socket.socket, into: bytearray) -> None:
    while data := connection.recv(1000):
        into += data


def download_seconds(relay: Relay, length: int) -> float:
    started = time.monotonic()
    with connect(relay) as connection:
        assert len(receive(connection, length)) == length
    return time.monotonic() - started


def in_parallel(count: int, work: Callable[[], float]) -> list[float]:
    seconds: list[float] = []
    threads = [threading.Thread(target=lambda: seconds.append(work())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seconds) == count
    return seconds


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_plain_relay_hands_on_every_byte_and_the_close(relay: MakeRelay) -> None:
    with Peer(source(PATTERN)) as peer:
        between = relay(target=peer.endpoint)
        with connect(between) as connection:
            assert receive(connection, len(PATTERN) + 1) == PATTERN
        eventually(lambda: between.stats().open == 0)
        stats = between.stats()
    assert (stats.accepted, stats.bytes_down, stats.queued_bytes, stats.resets) == (1, len(PATTERN), 0, 0)


def test_half_close_of_the_client_reaches_the_target(relay: MakeRelay, echo_peer: Peer) -> None:
    with connect(relay(target=echo_peer.endpoint, delay_ms=5)) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection, 100) == b"last words"


def test_delay_is_added_each_way(relay: MakeRelay, echo_peer: Peer) -> None:
    with connect(relay(target=echo_peer.endpoint, delay_ms=100)) as connection:
        assert 0.2 <= round_trip_seconds(connection) < 1.8


def test_jitter_keeps_the_order_of_bytes_and_stays_within_bounds(relay: MakeRelay, echo_peer: Peer) -> None:
    with connect(relay(target=echo_peer.endpoint, delay_ms=20, jitter_ms=30, seed=5)) as connection:
        assert all(0.04 <= round_trip_seconds(connection, b"%d" % number) < 1.5 for number in range(10))
        threading.Thread(target=connection.sendall, args=[PATTERN]).start()
        assert receive(connection, len(PATTERN)) == PATTERN


def test_rate_is_shared_by_all_connections(relay: MakeRelay) -> None:
    with Peer(source(bytes(1_000_000))) as peer:
        between = relay(target=peer.endpoint, rate=2_000_000)
        seconds = in_parallel(2, lambda: download_seconds(between, 1_000_000))
    assert 0.9 <= max(seconds) < 6.0
    # Both got their share: neither had to wait until the other was served.
    assert min(seconds) >= 0.6


def test_rate_of_a_connection_is_its_own(relay: MakeRelay) -> None:
    with Peer(source(bytes(500_000))) as peer:
        between = relay(target=peer.endpoint, connection_rate=500_000)
        seconds = in_parallel(4, lambda: download_seconds(between, 500_000))
    assert min(seconds) >= 0.9
    # One after the other they would need 4 s.
    assert max(seconds) < 3.0


def test_slow_connection_does_not_hold_back_the_link(relay: MakeRelay) -> None:
    with Peer(source(bytes(2_000_000))) as peer:
        between = relay(target=peer.endpoint, rate=8_000_000, slow_every=2, slow_rate=20_000)
        with connect(between) as fast, connect(between) as slow:
            assert len(receive(slow, 1000)) == 1000
            assert len(receive(fast, 2_000_000)) == 2_000_000
            by_index = {int(str(each["index"])): each for each in between.stats().connections}
            assert int(str(by_index[1]["bytes_down"])) < 1_000_000


def test_slow_connection_keeps_its_rate_beside_many_that_fill_the_link(relay: MakeRelay) -> None:
    with Peer(source(bytes(4_000_000))) as peer:
        between = relay(target=peer.endpoint, rate=40_000_000, slow_connections=[0], slow_rate=400_000)
        with connect(between) as slow, ThreadPoolExecutor(20) as pool:
            assert len(receive(slow, 1000)) == 1000
            others = [pool.submit(download_seconds, between, 4_000_000) for _ in range(20)]
            assert len(receive(slow, 100_000)) == 100_000
            # That takes a quarter of a second and the others two; a kilobyte at each turn of the link would take four.
            assert not all(other.done() for other in others)


def test_window_comes_back_after_a_round_trip_so_connections_add_up(relay: MakeRelay) -> None:
    with Peer(source(bytes(640 * 1024))) as peer:
        between = relay(target=peer.endpoint, delay_ms=50, window_bytes=64 * 1024)
        seconds = in_parallel(4, lambda: download_seconds(between, 640 * 1024))
    # Ten windows: nine waits of a round trip, and the way of the last. One after the other: four times that.
    assert min(seconds) >= 0.9
    assert max(seconds) < 2.85


def test_first_byte_is_slow_and_the_next_are_not(relay: MakeRelay, echo_peer: Peer) -> None:
    with connect(relay(target=echo_peer.endpoint, first_byte_ms=800)) as connection:
        assert round_trip_seconds(connection) >= 0.8
        assert round_trip_seconds(connection) < 1.8


def test_reset_comes_after_the_bytes_that_were_asked(relay: MakeRelay) -> None:
    with Peer(source(PATTERN)) as peer:
        between = relay(target=peer.endpoint, reset_after_bytes=5000)
        with connect(between) as connection:
            got = bytearray()
            with pytest.raises(ConnectionResetError):
                read_to_the_end(connection, got)
        assert got == PATTERN[: len(got)]
        assert len(got) <= 5000
        assert between.stats().resets == 1


def test_reset_set_on_an_open_connection_counts_from_there(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint)
    with connect(between) as connection:
        round_trip_seconds(connection, PATTERN[:10_000])
        between.set(reset_after_bytes=100)
        round_trip_seconds(connection, b"x" * 99)
        with pytest.raises(ConnectionResetError):
            round_trip_seconds(connection, b"y" * 50)


def test_reset_in_the_up_direction_spares_the_answers(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint, direction="up", reset_after_bytes=1000)
    with connect(between) as connection:
        round_trip_seconds(connection, b"x" * 900)
        with pytest.raises(ConnectionResetError):
            round_trip_seconds(connection, b"y" * 200)


def test_reset_all_breaks_what_is_open_and_nothing_later(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint)
    with connect(between) as first:
        round_trip_seconds(first)
        between.reset_all()
        with pytest.raises(ConnectionResetError):
            receive(first, 1)
    attempt(between)


def test_truncate_ends_cleanly_after_exactly_that_many_bytes(relay: MakeRelay) -> None:
    with Peer(source(PATTERN)) as peer:
        between = relay(target=peer.endpoint, truncate_after_bytes=70_001)
        with connect(between) as connection:
            assert receive(connection, len(PATTERN)) == PATTERN[:70_001]
        eventually(lambda: between.stats().open == 0)
        assert between.stats().truncations == 1


def test_flip_turns_over_one_bit_of_one_byte(relay: MakeRelay) -> None:
    with Peer(source(PATTERN)) as peer:
        between = relay(target=peer.endpoint, flip_after_bytes=123_456)
        with connect(between) as connection:
            got = receive(connection, len(PATTERN))
    wrong = [index for index, (sent, came) in enumerate(zip(PATTERN, got, strict=True)) if sent != came]
    assert wrong == [123_456]
    assert (PATTERN[123_456] ^ got[123_456]).bit_count() == 1
    assert between.stats().flips == 1


def test_random_flips_follow_the_seed(relay: MakeRelay) -> None:
    def damaged(seed: int) -> bytes:
        between = relay(target=peer.endpoint, flip_mean_bytes=100_000, seed=seed)
        with connect(between) as connection:
            return receive(connection, len(PATTERN))

    with Peer(source(PATTERN)) as peer:
        first, again, other = damaged(1), damaged(1), damaged(2)
    assert first == again != other
    assert PATTERN not in (first, other)


def test_stall_moves_nothing_and_goes_on_when_cleared(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint)
    with connect(between) as before:
        round_trip_seconds(before)
        between.set(is_stalled=True)
        with connect(between) as during:
            for connection in (before, during):
                connection.sendall(b"anyone there?")
                connection.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            between.clear()
            for connection in (before, during):
                connection.settimeout(30)
                assert receive(connection, 13) == b"anyone there?"


def test_stall_after_bytes_stops_there_and_goes_on_when_cleared(relay: MakeRelay) -> None:
    with Peer(source(PATTERN)) as peer:
        between = relay(target=peer.endpoint, stall_after_bytes=40_000)
        with connect(between) as connection:
            assert receive(connection, 40_000) == PATTERN[:40_000]
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            between.clear()
            connection.settimeout(30)
            assert receive(connection, len(PATTERN)) == PATTERN[40_000:]


def test_swapped_results_change_places_and_nothing_else_does(relay: MakeRelay) -> None:
    """Frames of CQL: version, flags, stream, kind, length of the body; a swap exchanges the streams of two of them."""
    frames = [b"\x84\0\0%c\x08\0\0\0\x03%c%c%c" % (number, *[number] * 3) for number in range(100)]
    with Peer(source(b"".join(frames))) as peer:
        between = relay(target=peer.endpoint, swap_after_bytes=200)
        with connect(between) as connection:
            received = receive(connection, 1200)
    came = [received[at : at + 12] for at in range(0, 1200, 12)]
    changed = [number for number, frame in enumerate(came) if frame != frames[number]]
    assert len(changed) == 2
    one, other = changed
    assert [came[one][3], came[other][3]] == [other, one]
    assert [came[one][9:], came[other][9:]] == [frames[one][9:], frames[other][9:]]
    assert between.stats().swaps == 1


def test_half_open_connection_is_dead_for_good_and_nobody_is_told(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint)
    with connect(between) as dead:
        round_trip_seconds(dead)
        between.set(is_half_open=True)
        dead.sendall(bytes(10_000_000))
        echo_peer.hang_up()
        between.clear()
        dead.settimeout(0.5)
        with pytest.raises(TimeoutError):
            dead.recv(1)
        with connect(between) as alive:
            round_trip_seconds(alive)
    eventually(lambda: between.stats().open == 0)


def test_connections_above_the_cap_are_reset(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint, max_connections=1)
    with connect(between) as first:
        round_trip_seconds(first)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            attempt(between)
    eventually(lambda: between.stats().open == 0)
    attempt(between)
    assert between.stats().refused == 1


def test_every_second_connection_is_slower(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint, delay_ms=20, slow_every=2, slow_delay_factor=20)
    with connect(between) as first:
        round_trip_seconds(first)
        with connect(between) as second:
            assert round_trip_seconds(second) >= 0.8
        assert 0.04 <= round_trip_seconds(first) < 1.8


def test_exactly_the_connections_that_were_named_are_slower(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint, delay_ms=20, slow_delay_factor=20)
    with connect(between) as first, connect(between) as second, connect(between) as third:
        for connection in (first, second, third):
            round_trip_seconds(connection)
        between.set(slow_connections=[1])
        assert round_trip_seconds(second) >= 0.8
        slow = [each["index"] for each in between.stats().connections if each["is_slow"]]
        assert slow == [1]
        between.set(slow_connections=None)
        assert not any(each["is_slow"] for each in between.stats().connections)


def test_shorter_delay_also_reaches_bytes_that_are_on_their_way(relay: MakeRelay, echo_peer: Peer) -> None:
    between = relay(target=echo_peer.endpoint, delay_ms=600_000)
    with connect(between) as connection:
        connection.sendall(b"late")
        eventually(lambda: between.stats().queued_bytes == 4)
        between.set(delay_ms=1)
        assert receive(connection, 4) == b"late"


def test_whole_bandwidth_delay_product_is_held(relay: MakeRelay) -> None:
    """300 MB/s times 150 ms."""
    product_bytes = 45_000_000
    with Peer(sink) as peer:
        between = relay(target=peer.endpoint, delay_ms=20_000)
        with connect(between) as connection:
            connection.sendall(bytes(product_bytes))
            eventually(lambda: between.stats().queued_bytes == product_bytes)
            between.clear()
            eventually(lambda: between.stats().bytes_up == product_bytes)


def test_receiver_that_takes_nothing_stops_the_sender(relay: MakeRelay) -> None:
    with Peer(lambda connection: time.sleep(60)) as peer:
        between = relay(target=peer.endpoint)
        with connect(between) as connection:
            connection.settimeout(1)
            with pytest.raises(TimeoutError):
                connection.sendall(bytes(200_000_000))
        assert between.stats().peak_queued_bytes < 8_000_000


def test_several_targets_share_one_link(relay: MakeRelay) -> None:
    with Peer(source(bytes(500_000))) as left, Peer(source(bytes(500_000))) as right:
        between = relay(target=[left.endpoint, right.endpoint], rate=1_000_000)
        started = time.monotonic()
        connections = []
        for endpoint in between.endpoints:
            host, _, port = endpoint.rpartition(":")
            connections.append(socket.create_connection((host, int(port)), timeout=30))
        assert [len(receive(connection, 500_000)) for connection in connections] == [500_000, 500_000]
        for connection in connections:
            connection.close()
    assert 0.9 <= time.monotonic() - started < 6.0


def test_target_that_is_down_looks_like_a_reset(relay: MakeRelay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host, port = closed.getsockname()
    between = relay(target=f"{host}:{port}")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        attempt(between)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dealy_ms": 5}, "no setting dealy_ms"),
        ({"rate": -1}, "rate must be between 0"),
        ({"delay_ms": "long"}, "invalid type"),
        ({"direction": "left"}, "unknown variant"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    relay: MakeRelay, echo_peer: Peer, settings: dict[str, object], message: str
) -> None:
    between = relay(target=echo_peer.endpoint, delay_ms=1)
    with pytest.raises(HarnessError, match=message):
        between.set(**settings)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(HarnessError, match=message):
        relay(target=echo_peer.endpoint, **settings)
    with connect(between) as connection:
        round_trip_seconds(connection)
