"""How an engine lives and ends: threads, forks, signals, exits."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from property.native.engine_world import EngineWorld, epoch_of

from penstock._errors import CorePanicked, EngineClosed
from penstock._native import Batch, Engine

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world() -> EngineWorld:
    return EngineWorld(600)


def run_script(body: str, *, seconds: float = 30.0, has_world: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, as a rule with a `world`."""
    head = f"""
        import os, signal, sys, threading, time
        sys.path.insert(0, {str(TESTS)!r})
    """
    make_world = """
        from property.native.engine_world import EngineWorld, epoch_of
        world = EngineWorld(600)
    """
    script = textwrap.dedent(head) + textwrap.dedent(make_world if has_world else "") + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_close_ends_within_two_seconds_with_500_reads_in_flight(world: EngineWorld) -> None:
    engine = world.engine(world.store(delay_ms=[60_000, 60_000]), fields=("image",))
    engine.start_epoch(0)
    deadline = time.monotonic() + 10
    while engine.stats()["inflight_samples"] < 500:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 6
    engine.close()


def test_a_bug_in_the_core_is_an_ordinary_error(world: EngineWorld) -> None:
    with world.engine(world.store(panic_share=1.0)) as engine:
        engine.start_epoch(0)
        for _ in range(2):
            with pytest.raises(CorePanicked, match="the fault plan says so"):
                engine.next_batch()
        with pytest.raises(CorePanicked, match="the fault plan says so"):
            engine.start_epoch(1)
    with world.engine(world.store(has_broken_counters=True)) as engine:
        with pytest.raises(CorePanicked, match="the fault plan says so"):
            engine.stats()
        assert len(epoch_of(engine, 0)) == 150


def test_an_idle_engine_gives_its_memory_back(world: EngineWorld) -> None:
    with world.engine(idle_seconds=0.2, batch_size=10) as engine:
        engine.start_epoch(0)
        seen = [row.position for _ in range(4) for row in world.rows(taken(engine))]
        deadline = time.monotonic() + 20
        while (stats := engine.stats())["parks"] == 0 or stats["held_bytes"] or stats["arena_idle_bytes"]:
            assert time.monotonic() < deadline, stats
            time.sleep(0.01)
        assert stats["arena_lent_bytes"] == stats["ready_batches"] == stats["arrived_samples"] == 0
        while (batch := engine.next_batch()) is not None:
            assert batch.step == len(seen) // 10
            seen += [row.position for row in world.rows(batch)]
    assert sorted(seen) == list(range(600))


def test_memory_of_an_idle_engine_is_the_machines_again() -> None:
    result = run_script("""
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

        large = EngineWorld(600, most_bytes=100_000)
        with large.engine(idle_seconds=1.0, batch_size=20, prefetch_bytes=1 << 27, window_bytes=1 << 24) as engine:
            before, held = resident(), 0
            engine.start_epoch(0)
            engine.next_batch()
            while engine.stats()["parks"] == 0 or engine.stats()["held_bytes"]:
                held = max(held, resident() - before)
                time.sleep(0.01)
            time.sleep(1)
            print(held, resident() - before)
    """)
    assert result.returncode == 0, result.stderr
    held, kept = map(int, result.stdout.split())
    assert held > 30
    assert kept < held // 2


def test_an_engine_that_nobody_asks_after_an_epoch_gives_up_the_next(world: EngineWorld) -> None:
    with world.engine(idle_seconds=0.5) as engine:
        epoch_of(engine, 0)
        deadline = time.monotonic() + 20
        # Both epochs were asked for, 600 samples in 800 objects each, and nothing is left of the second.
        while (stats := engine.stats())["requests"] < 1600 or stats["held_bytes"] or stats["arena_lent_bytes"]:
            assert time.monotonic() < deadline, stats
            time.sleep(0.01)
        assert stats["inflight_samples"] == stats["arrived_samples"] == stats["ready_batches"] == 0
        seen = [row.position for batch in epoch_of(engine, 1) for row in world.rows(batch)]
    assert sorted(seen) == list(range(600))


def taken(engine: Engine) -> Batch:
    batch = engine.next_batch()
    assert batch is not None
    return batch


def test_use_after_close_says_so(world: EngineWorld) -> None:
    engine = world.engine()
    engine.start_epoch(0)
    batch = engine.next_batch()
    assert batch is not None
    engine.close()
    with pytest.raises(EngineClosed, match="make a new one"):
        engine.next_batch()
    with pytest.raises(EngineClosed):
        engine.start_epoch(1)
    engine.ack(batch.seq)
    world.check_bytes(batch)


def test_closing_wakes_a_waiting_thread(world: EngineWorld) -> None:
    engine = world.engine(world.store(delay_ms=[60_000, 60_000]))
    engine.start_epoch(0)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            engine.next_batch()
        except EngineClosed as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    engine.close()
    thread.join(timeout=5)
    assert len(caught) == 1


def test_waiting_leaves_the_interpreter_to_others(world: EngineWorld) -> None:
    engine = world.engine(world.store(delay_ms=[300, 300]), batch_size=8)
    engine.start_epoch(0)
    turns = 0
    done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    engine.next_batch()
    done.set()
    thread.join()
    engine.close()
    assert turns > 20


def test_several_threads_share_an_epoch(world: EngineWorld) -> None:
    engine = world.engine(world.store(delay_ms=[0, 2]))
    engine.start_epoch(0)
    seen: list[int] = []

    def take() -> None:
        while (batch := engine.next_batch()) is not None:
            seen.extend(row.position for row in world.rows(batch))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    engine.close()
    assert sorted(seen) == list(range(600))


def test_ctrl_c_interrupts_a_waiting_next_batch() -> None:
    result = run_script("""
        engine = world.engine(world.store(delay_ms=[60_000, 60_000]))
        engine.start_epoch(0)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            engine.next_batch()
        except KeyboardInterrupt:
            assert time.monotonic() - started < 6
            print("interrupted")
        engine.close()
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "interrupted\n"


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "raise RuntimeError('consumer')", "del engine"])
def test_the_interpreter_ends_quickly_with_reads_in_flight(ending: str) -> None:
    started = time.monotonic()
    result = run_script(f"""
        engine = world.engine(world.store(delay_ms=[60_000, 60_000]), fields=("image",))
        engine.start_epoch(0)
        while engine.stats()["inflight_samples"] < 500:
            time.sleep(0.01)
        print(time.monotonic(), flush=True)
        {ending}
    """)
    ended = time.monotonic()
    assert result.returncode == (1 if "raise" in ending else 0), result.stderr
    assert "Fatal" not in result.stderr
    begun = float(result.stdout)
    assert ended - begun < 6, f"whole run {ended - started:.1f} s"  # 2 s, with slack for a busy machine


def test_nothing_native_runs_before_a_store_is_opened() -> None:
    """A process that only imported Penstock may fork as it likes."""
    result = run_script(
        """
        import penstock
        from penstock._native import Order, Store, xxh3_64
        def threads():
            return len(os.listdir("/proc/self/task"))
        penstock.Client("http://127.0.0.1:9", "pst_x").close()
        assert (Order(9, seed=1, epoch=0).at(0) < 9, xxh3_64(b"x") > 0) == (True, True)
        before = threads()
        with Store.open('{"kind": "memory", "name": "x"}'):
            print(before, threads() > 1)
        """,
        has_world=False,
    )
    assert (result.returncode, result.stdout) == (0, "1 True\n"), result.stderr


def test_nothing_native_is_pickled(world: EngineWorld) -> None:
    """A store knows its password, and none of them means anything elsewhere."""
    store = world.store()
    with world.engine(store) as engine, world.engine(form="list") as lists:
        batch = epoch_of(engine, 0)[0]
        sample = epoch_of(lists, 0)[0].samples("image")[0]
        for each in (store, engine, batch, batch.field("image")[0], sample):
            with pytest.raises(TypeError, match="cannot pickle"):
                pickle.dumps(each)
            with pytest.raises(TypeError, match="cannot pickle"):
                copy.copy(each)


def test_a_held_view_survives_the_end_of_the_interpreter() -> None:
    result = run_script("""
        engine = world.engine()
        kept = [memoryview(batch.field("image")[0]) for batch in epoch_of(engine, 0)]
        print(sum(view.nbytes for view in kept) > 0)
    """)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


def test_a_forked_child_gets_a_clear_error_and_can_make_its_own() -> None:
    result = run_script("""
        from penstock._errors import ForkedProcess
        engine = world.engine(world.store(delay_ms=[0, 5]))
        engine.start_epoch(0)
        batch = engine.next_batch()
        child = os.fork()
        if child == 0:
            for use in (engine.next_batch, engine.stats, lambda: engine.start_epoch(1), lambda: engine.ack(0)):
                try:
                    use()
                except ForkedProcess as error:
                    assert "make a new one in the child" in str(error)
                else:
                    os._exit(3)
            engine.close()
            world.check_bytes(batch)
            del engine, batch
            fresh = EngineWorld(20)
            own = fresh.engine()
            assert len(epoch_of(own, 0)) == 5
            own.close()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        rest = 0
        while engine.next_batch() is not None:
            rest += 1
        engine.close()
        print(os.waitstatus_to_exitcode(status), rest)
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "7 149\n", result.stderr


def test_many_broken_epochs_leave_memory_and_threads_flat(world: EngineWorld) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with world.engine(world.store(delay_ms=[0, 2]), prefetch_bytes=200_000) as engine:

        def broken(epochs: range) -> None:
            for epoch in epochs:
                engine.start_epoch(epoch)
                assert engine.next_batch() is not None

        broken(range(100))
        before, threads = resident(), len(os.listdir("/proc/self/task"))
        broken(range(100, 400))
        assert resident() - before < 8 << 20
        assert len(os.listdir("/proc/self/task")) <= threads + 8  # the blocking pool may still grow to its limit
        assert sorted(row.position for batch in epoch_of(engine, 1000) for row in world.rows(batch)) == list(range(600))


def test_signals_are_handled_while_waiting(world: EngineWorld) -> None:
    hits: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: hits.append(number))
    try:
        engine = world.engine(world.store(delay_ms=[400, 400]), batch_size=2)
        engine.start_epoch(0)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert engine.next_batch() is not None
        engine.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hits == [signal.SIGUSR1]
