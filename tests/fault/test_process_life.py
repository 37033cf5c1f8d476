"""S10 and S12: loaders and processes that fork, spawn, pickle, are interrupted and end with requests in flight."""

import pickle
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault.process_ends import ENDINGS, INHERITED_USES, assert_ends_at_once, assert_sound, run_script
from unit.server.data.builders import SCHEMA, items
from unit.server.data.test_data_api import RECIPE, Api, served

import penstock
from harness.services import Services
from harness.soak import repetitions

KINDS = ["lmdb", "memory"]

HEAD = """
import os, signal, sys, threading, time
from pathlib import Path
from fault.loader_workers import MOSTLY_SLOW, OPTIONS, training_on, valid_ids, wait_for_flight
import penstock

kind, folder = sys.argv[1], Path(sys.argv[2])

def loader_with(faults):
    return training_on(kind, folder, faults=faults).api.client().loader("demo", **OPTIONS)
"""


class Scripts:
    """Scripts with a store of some kind, each in a process of its own."""

    def __init__(self, services: Services, folder: Path) -> None:
        self._run = services.run
        self._folder = folder

    def run(self, body: str, kind: str, **variables: str) -> subprocess.CompletedProcess[str]:
        store = self._folder / "store"
        store.mkdir()
        cache = {"PENSTOCK_CACHE_FOLDER": str(self._folder / "cache")}
        return run_script(self._run, HEAD + textwrap.dedent(body), kind, str(store), **cache | variables)


@pytest.fixture
def scripts(services: Services, tmp_path: Path) -> Scripts:
    return Scripts(services, tmp_path)


@pytest.mark.parametrize("attempt", range(repetitions(1, 12)))
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_s12_process_ends_at_once_with_500_requests_in_flight(
    kind: str, ending: str, attempt: int, scripts: Scripts
) -> None:
    head = """
loader = loader_with(MOSTLY_SLOW)
running = iter(loader)
assert len(next(running)["ids"]) == 4
wait_for_flight(loader, kind)
"""
    assert_ends_at_once(lambda body: scripts.run(body, kind), head, ending)


@pytest.mark.parametrize("kind", KINDS)
def test_s12_an_interrupted_loop_can_go_on_and_loses_nothing(kind: str, scripts: Scripts) -> None:
    ended = scripts.run(
        """
        from collections import Counter
        loader = loader_with({"seed": 3, "delay_ms": [5, 20], "slow_share": 0.02, "slow_ms": 200})
        interrupts, is_done = 0, threading.Event()

        def interrupt():
            while not is_done.wait(0.03):
                os.kill(os.getpid(), signal.SIGINT)

        class Again(Exception):
            pass

        def again(number, frame):
            global interrupts
            interrupts += 1
            raise Again

        signal.signal(signal.SIGINT, again)
        running, seen, state = iter(loader), Counter(), None
        threading.Thread(target=interrupt, daemon=True).start()
        while True:
            try:
                batch = next(running)
                is_done.set()
                break
            except Again:
                pass
        seen.update(valid_ids(batch))
        for batch in running:
            seen.update(valid_ids(batch))
        loader.close()
        print(len(seen), set(seen.values()))
        """,
        kind,
    )
    assert_sound(ended)
    assert ended.stdout.split() == ["700", "{1}"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("child_ending", ["os._exit(7)", "sys.exit(7)"])
def test_s10_fork_after_first_use_raises_at_once_and_the_parent_goes_on(
    kind: str, child_ending: str, scripts: Scripts
) -> None:
    body = f"""
        loader = loader_with({{"delay_ms": [0, 2]}})
        state = loader.state_dict()
        running = iter(loader)
        seen = valid_ids(next(running))
        child = os.fork()
        if child == 0:
            refuse_all_uses(loader, running, state)
            {child_ending}
        _, status = os.waitpid(child, 0)
        for batch in running:
            seen += valid_ids(batch)
        loader.close()
        print(os.waitstatus_to_exitcode(status), len(seen), len(set(seen)))
    """
    ended = scripts.run(INHERITED_USES + textwrap.dedent(body), kind)
    assert_sound(ended)
    assert ended.stdout.split() == ["7", "700", "700"], ended.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_s10_children_of_a_busy_process_make_their_own_loaders(kind: str, scripts: Scripts) -> None:
    ended = scripts.run(
        """
        training = training_on(kind, folder, faults={"delay_ms": [0, 2]})
        client = training.api.client()
        loader = client.loader("demo", **OPTIONS)
        running = iter(loader)
        seen = valid_ids(next(running))
        children = []
        for rank in range(3):
            child = os.fork()
            if child == 0:
                if kind == "memory":
                    training = training_on(kind, folder)
                with training.api.client().loader("demo", **OPTIONS, rank=rank, world_size=3) as own:
                    count = sum(len(valid_ids(batch)) for batch in own)
                sys.exit(count - 200)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        for batch in running:
            seen += valid_ids(batch)
        print(sum(codes) + 600, len(set(seen)))
        """,
        kind,
    )
    assert_sound(ended)
    assert ended.stdout.split() == ["700", "700"], ended.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with served(tmp_path_factory.mktemp("server")) as api:
        api.client.post("/datasets", json={"name": "demo", "schema": SCHEMA.model_dump(mode="json")})
        api.publish("demo", items(300))
        made = api.client.post("/datasets/demo/splits", json={"name": "by-patient", "recipe": RECIPE})
        assert made.status_code == 201, made.text
        yield api


def token_of(server: Api) -> str:
    return server.client.headers["Authorization"].removeprefix("Bearer ")


SPAWNED = {
    "pool": """
        import multiprocessing
        from fault.loader_workers import ids_of_rank
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.starmap(ids_of_rank, [(client, rank, 2) for rank in range(2)])
    """,
    "torch workers": """
        import torch
        from fault.torch_workers import OwnLoader
        found = list(torch.utils.data.DataLoader(
            OwnLoader(client), batch_size=None, num_workers=2, multiprocessing_context="spawn"
        ))
    """,
}


@pytest.mark.parametrize("way", SPAWNED)
def test_s10_spawned_workers_make_loaders_from_a_pickled_client(server: Api, way: str, scripts: Scripts) -> None:
    body = f"""
        import pickle
        client = penstock.Client()
        with client.loader("demo", **OPTIONS) as loader:
            everything = sorted(text for batch in loader for text in valid_ids(batch))
        assert os.environ["PENSTOCK_TOKEN"].encode() not in pickle.dumps(client)
        {textwrap.indent(textwrap.dedent(SPAWNED[way]), "        ").strip()}
        assert sorted(sum(found, [])) == everything, found
        print(len(everything) > 100)
    """
    ended = scripts.run(body, "none", PENSTOCK_URL=server.address, PENSTOCK_TOKEN=token_of(server))
    assert_sound(ended)
    assert ended.stdout.split() == ["True"]


def test_s10_nothing_that_can_be_pickled_holds_a_secret(
    server: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_FOLDER", str(tmp_path / "cache"))
    token = token_of(server)
    with penstock.Client(server.address, token=token) as client:
        plan = client.resolve("demo", split="train")
        loader = client.loader("demo", split="train", batch_size=4, decode=None, output="numpy", telemetry=False)
        with loader:
            batch = next(iter(loader))
            pickled = [pickle.dumps(each) for each in (client, plan, batch, loader.dataset, loader.state_dict())]
            with pytest.raises(TypeError, match="make a new one where it is needed"):
                pickle.dumps(loader)
        again = pickle.loads(pickle.dumps(batch))
        with pytest.raises(TypeError, match="make a new client"):
            pickle.dumps(client.dataset("demo"))
    assert not [data for data in pickled if token.encode() in data]
    assert plan.store.config is not None
    assert not [data for data in pickled if str(plan.store.config["path"]).encode() in data]
    assert Counter(again.id_strings()) == Counter(batch.id_strings())
