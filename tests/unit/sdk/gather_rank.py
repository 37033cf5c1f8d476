"""One rank of `test_gather`: a process with a process group, a loader and a few steps."""

import json
import os
import sys
import uuid
import warnings
from pathlib import Path

import torch.distributed as distributed
from unit.sdk.conftest import FakeApi, Training
from unit.sdk.loading import loader_of, valid_indices

from penstock import StateError
from penstock._loader import Loader

DATASET = uuid.UUID(int=9)


def main(folder: Path, rank: int, world_size: int, steps: int, store: str) -> None:
    config = {"kind": "lmdb", "path": store, "is_read_only": True}
    training = Training(FakeApi(), config, count=101, rows_a_part=60, dataset_id=DATASET)
    early = loader_of(training)
    if rank == 1:
        load_state_of_another(early)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    try:
        early.gather_state()
    except StateError as error:
        misfit = str(error)
    early.close()
    with loader_of(training, shuffle=True) as loader:
        running = iter(loader)
        seen = valid_indices(training, [next(running) for _ in range(steps)])
        state = loader.gather_state()
        next(running)
        if rank == 0:
            next(running)
        try:
            loader.gather_state()
        except StateError as error:
            refusal = str(error)
        if rank == 1:
            loader.close()
        try:
            loader.gather_state()
        except StateError as error:
            failure = str(error)
    result = {"seen": seen, "state": state, "refusal": refusal, "failure": failure, "misfit": misfit}
    (folder / f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


def load_state_of_another(loader: Loader) -> None:
    """Before there is a process group: the state of the first rank, which this one will turn out not to be."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "2"}
    next(iter(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = loader.state_dict()
    loader.load_state_dict(state)


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:5]]
    main(Path(sys.argv[1]), numbers[0], numbers[1], numbers[2], sys.argv[5])
