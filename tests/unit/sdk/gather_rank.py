"""One rank of `test_gather`: a process with a process group, a loader and a few steps."""

import json
import sys
import uuid
from pathlib import Path

import torch.distributed as distributed
from unit.sdk.conftest import FakeApi, Training
from unit.sdk.loading import loader_of, valid_indices

from penstock import StateError

DATASET = uuid.UUID(int=9)


def main(folder: Path, rank: int, world_size: int, steps: int, store: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    config = {"kind": "lmdb", "path": store, "is_read_only": True}
    training = Training(FakeApi(), config, count=101, rows_a_part=60, dataset_id=DATASET)
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
    result = {"seen": seen, "state": state, "refusal": refusal, "failure": failure}
    (folder / f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:5]]
    main(Path(sys.argv[1]), numbers[0], numbers[1], numbers[2], sys.argv[5])
