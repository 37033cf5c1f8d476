"""S10 and S12 on the ring: processes with requests to Cassandra in flight, held back by the relays."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fault.engine.celery_life import BROKER_VARIABLE, LIFE_VARIABLE, create_app
from fault.engine.life_on_ring import LifeOnRing
from fault.loader_workers import COUNT
from fault.process_ends import (
    ENDINGS,
    EXIT_SECONDS,
    INHERITED_USES,
    assert_ends_at_once,
    assert_sound,
    run_script,
    script_environment,
)

from harness.run import Run
from harness.services import Services
from harness.soak import repetitions, time_limit

pytestmark = pytest.mark.timeout(time_limit(900))

HEAD = """
import json, os, signal, sys, threading, time
from fault.engine.life_on_ring import LifeOnRing
from fault.loader_workers import OPTIONS, valid_ids
import penstock

kind, life = "cql", LifeOnRing(**json.loads(sys.argv[1]))
"""


class Scripts:
    """Scripts that know the ring, each in a process of its own."""

    def __init__(self, services: Services, life: LifeOnRing, folder: Path) -> None:
        self._run = services.run
        self._life = json.dumps(dataclasses.asdict(life))
        self._cache = str(folder / "cache")

    def run(self, body: str) -> subprocess.CompletedProcess[str]:
        text = HEAD + INHERITED_USES + textwrap.dedent(body)
        return run_script(self._run, text, self._life, PENSTOCK_CACHE_FOLDER=self._cache)


@pytest.fixture
def scripts(services: Services, life: LifeOnRing, tmp_path: Path) -> Scripts:
    return Scripts(services, life, tmp_path)


@pytest.mark.parametrize("attempt", range(repetitions(1, 12)))
@pytest.mark.parametrize("ending", ENDINGS)
def test_s12_process_ends_at_once_with_500_requests_in_flight(scripts: Scripts, ending: str, attempt: int) -> None:
    head = """
loader = life.loader()
running = iter(loader)
life.hold_answers(loader, running)
"""
    assert_ends_at_once(scripts.run, head, ending)


@pytest.mark.parametrize("attempt", range(repetitions(1, 50)))
@pytest.mark.parametrize("child_ending", ["os._exit(7)", "sys.exit(7)"])
def test_s10_fork_after_first_use_raises_at_once_and_the_parent_goes_on(
    scripts: Scripts, child_ending: str, attempt: int
) -> None:
    ended = scripts.run(
        f"""
        loader = life.loader()
        state, running = loader.state_dict(), iter(loader)
        life.hold_answers(loader, running)
        child = os.fork()
        if child == 0:
            refuse_all_uses(loader, running, state)
            life.shape(is_stalled=False, rate=None, delay_ms=None)
            assert len(life.ids_of_rank(0, 7)) == 100
            del loader, running
            {child_ending}
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), sum(len(valid_ids(batch)) for batch in running))
        loader.close()
        """,
    )
    assert_sound(ended)
    # One batch was taken while the answers were held back.
    assert ended.stdout.split() == ["7", str(COUNT - 4)], ended.stderr


@pytest.mark.parametrize("attempt", range(repetitions(1, 20)))
def test_s10_children_of_a_busy_process_open_stores_and_loaders_and_drop_inherited_ones(
    scripts: Scripts, attempt: int
) -> None:
    ended = scripts.run(
        """
        from penstock._native import Store
        from fault.engine.life_on_ring import DATASET_ID
        busy, idle = (Store.open(json.dumps(life.store_config)) for _ in range(2))
        keys = [key.bytes for key in life.training().object_ids[:64]]
        is_done = threading.Event()

        def read_on():
            while not is_done.is_set():
                busy.read("samples", DATASET_ID.bytes, keys)

        readers = [threading.Thread(target=read_on) for _ in range(3)]
        for reader in readers:
            reader.start()
        loader = life.loader()
        running = iter(loader)
        seen = valid_ids(next(running))
        children = []
        for rank in range(3):
            child = os.fork()
            if child == 0:
                started = time.monotonic()
                # The last handle of a store whose threads are the parent's.
                del idle
                assert time.monotonic() - started < 3
                with Store.open(json.dumps(life.store_config)) as own:
                    assert all(own.read("samples", DATASET_ID.bytes, keys))
                sys.exit(len(life.ids_of_rank(rank, 3)) - 200)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        is_done.set()
        for batch in running:
            seen += valid_ids(batch)
        print(sum(codes) + 600, len(set(seen)))
        """,
    )
    assert_sound(ended)
    assert ended.stdout.split() == [str(COUNT), str(COUNT)], ended.stderr


def test_s10_spawned_processes_share_an_epoch(scripts: Scripts) -> None:
    ended = scripts.run(
        """
        import multiprocessing
        loader = life.loader()
        running = iter(loader)
        seen = valid_ids(next(running))
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.starmap(life.ids_of_rank, [(rank, 2) for rank in range(2)])
        for batch in running:
            seen += valid_ids(batch)
        assert sorted(sum(found, [])) == sorted(seen)
        print(len(set(seen)))
        """,
    )
    assert_sound(ended)
    assert ended.stdout.split() == [str(COUNT)]


@pytest.mark.parametrize("attempt", range(repetitions(1, 5)))
def test_s10_celery_prefork_children_refuse_the_inherited_loader_and_use_their_own(
    life: LifeOnRing, services: Services, redis_url: str, attempt: int, tmp_path: Path
) -> None:
    run: Run = services.run
    environment = script_environment(
        run,
        **{LIFE_VARIABLE: json.dumps(dataclasses.asdict(life)), BROKER_VARIABLE: redis_url},
        PENSTOCK_CACHE_FOLDER=str(tmp_path / "cache"),
    )
    argv = [sys.executable, "-m", "celery", "-A", "fault.engine.celery_life", "worker", "--pool=prefork"]
    options = ["--concurrency=2", "--without-gossip", "--without-mingle", "--loglevel=INFO"]
    worker = run.spawn("celery-life", [*argv, *options], env=environment, death_signal="TERM")
    with create_app(redis_url) as app:
        try:
            asked = [app.send_task("life.use_inherited") for _ in range(4)]
            read = [app.send_task("life.read_rank", (rank, 4)) for rank in range(4)]
            assert [each.get(timeout=120) for each in asked] == ["refused"] * 4, worker.log_tail()
            found = [text for each in read for text in each.get(timeout=120)]
        finally:
            started = time.monotonic()
            # To the worker itself: it ends its children.
            os.kill(worker.pid, signal.SIGTERM)
            while worker.is_running and time.monotonic() < started + 30:
                time.sleep(0.02)
            ended_after, exit_code = time.monotonic() - started, worker.exit_code
            worker.kill()
    assert len(found) == len(set(found)) == COUNT, worker.log_tail()
    assert ended_after < EXIT_SECONDS, worker.log_tail()
    assert exit_code == 0, worker.log_tail()
