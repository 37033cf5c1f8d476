"""One state of all ranks, taken over a real process group."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from unit.sdk.conftest import Training
from unit.sdk.gather_rank import DATASET
from unit.sdk.loading import loader_of, valid_indices

TESTS = Path(__file__).parents[2]
RANKS = 2
STEPS = 3


def test_all_ranks_get_one_state_that_any_world_goes_on_from(api: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    config = {"kind": "lmdb", "path": str(store), "is_read_only": False}
    training = Training(api, config, count=101, rows_a_part=60, dataset_id=DATASET)
    training.write()
    results = results_of_ranks(tmp_path, store)
    states = [result["state"] for result in results]
    assert states[0] == states[1]
    seen = [index for result in results for index in result["seen"]]
    assert len(seen) == RANKS * STEPS * 8
    for rank in range(3):
        with loader_of(training, shuffle=True, rank=rank, world_size=3, batch_size=5) as loader:
            loader.load_state_dict(states[0])
            seen += valid_indices(training, loader)
    assert Counter(seen) == Counter(range(101))
    for result in results:
        assert "the ranks stand at different steps ([5, 4])" in result["refusal"]
        assert "cannot be taken: rank 1: this loader is closed" in result["failure"]
        assert "cannot be taken: rank 1: the state is of rank 0 in a world of 2 alone" in result["misfit"]


def results_of_ranks(folder: Path, store: Path) -> list[dict[str, Any]]:
    # Process groups look for the machine's own address otherwise.
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"}
    script = Path(__file__).with_name("gather_rank.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(folder), str(rank), str(RANKS), str(STEPS), str(store)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
