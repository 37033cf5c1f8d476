"""Who this process is among those that share the training, and the name of the training."""

import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock._errors import ConfigError

_SLURM_TASKS = re.compile(r"(?P<tasks>[0-9]+)(\(x(?P<nodes>[0-9]+)\))?")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This rank, how many there are, and how many of them on this machine."""

    rank: int
    world_size: int
    local_world_size: int = 1


def find_ranks(
    rank: int | None = None, world_size: int | None = None, *, environ: Mapping[str, str] = os.environ
) -> Ranks:
    """From arguments, else torch.distributed (when it is in use), else RANK/WORLD_SIZE, else Slurm."""
    local = _local_world_size(environ)
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            raise ConfigError("rank and world_size belong together: pass both or neither")
        return _checked(rank, world_size, local, "the arguments")
    if (found := _from_torch()) is not None:
        return _checked(*found, local, "torch.distributed")
    if (found := _pair(environ, "RANK", "WORLD_SIZE")) is not None:
        return _checked(*found, local, "RANK and WORLD_SIZE")
    if _is_in_slurm_step(environ) and (found := _pair(environ, "SLURM_PROCID", "SLURM_NTASKS")) is not None:
        return _checked(*found, local, "SLURM_PROCID and SLURM_NTASKS")
    return Ranks(0, 1, local)


def find_run(run: str | None = None, *, environ: Mapping[str, str] = os.environ) -> str:
    """Name that groups the loaders of one training."""
    for name in (run, environ.get("PENSTOCK_RUN"), environ.get("TORCHELASTIC_RUN_ID"), environ.get("SLURM_JOB_ID")):
        # torchrun without a rendezvous calls every run "none".
        if name and name != "none":
            return name[:200]
    return _process_run()


_process_runs: dict[int, str] = {}


def _process_run() -> str:
    pid = os.getpid()
    if pid not in _process_runs:
        script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
        moment = datetime.now(UTC).strftime("%m%d-%H%M%S")
        _process_runs[pid] = f"{script}-{socket.gethostname()[:40]}-{moment}-{secrets.token_hex(2)}"
    return _process_runs[pid]


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _is_in_slurm_step(environ: Mapping[str, str]) -> bool:
    # Outside of a step (a batch script that runs python without srun) Slurm's numbers describe other processes.
    return "SLURM_STEP_ID" in environ


def _local_world_size(environ: Mapping[str, str]) -> int:
    """Ranks on this machine as torchrun or Slurm counts them; processes that a script itself starts nobody counts."""
    if told := _number(environ, "LOCAL_WORLD_SIZE"):
        return told
    if not _is_in_slurm_step(environ):
        return 1
    tasks = _slurm_tasks(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), environ.get("SLURM_NODEID", ""))
    return tasks or _number(environ, "SLURM_NTASKS_PER_NODE") or 1


def _slurm_tasks(text: str, node: str) -> int | None:
    """Tasks of one node out of a list like `4(x2),3`; of the fullest when it is not known which node this is."""
    groups = [_SLURM_TASKS.fullmatch(group) for group in text.split(",")]
    counts = [(int(group["tasks"]), int(group["nodes"] or 1)) for group in groups if group is not None]
    # Only a hint, so that what a newer Slurm may write there is no error.
    if len(counts) < len(groups):
        return None
    if node.isascii() and node.isdigit():
        later_nodes = int(node)
        for tasks, nodes in counts:
            if later_nodes < nodes:
                return tasks
            later_nodes -= nodes
    return max(tasks for tasks, _ in counts)


def _pair(environ: Mapping[str, str], rank_name: str, world_name: str) -> tuple[int, int] | None:
    rank, world_size = _number(environ, rank_name), _number(environ, world_name)
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        missing, there = (rank_name, world_name) if rank is None else (world_name, rank_name)
        raise ConfigError(f"{there} is set but {missing} is not: set both, or pass rank= and world_size=")
    return rank, world_size


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{name}={text!r} is no whole number")
    return int(text)


def _checked(rank: int, world_size: int, local_world_size: int, source: str) -> Ranks:
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError(f"rank {rank} of {world_size} (from {source}) cannot be: ranks go from 0 to world_size - 1")
    return Ranks(rank, world_size, max(1, min(local_world_size, world_size)))
