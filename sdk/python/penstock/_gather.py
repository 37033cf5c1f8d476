"""One state of all ranks, by torch.distributed."""

import sys
from collections.abc import Callable
from typing import Any

from penstock._errors import ConfigError, PenstockError, StateError
from penstock._ranks import Ranks


def gathered(own: Callable[[], dict[str, str]], ranks: Ranks, group: Any = None) -> list[dict[str, str]]:
    """What `own` gives on each rank; all ranks have to call this.

    A rank whose state cannot be taken says so to the others, which would wait for it for ever otherwise.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise ConfigError(
            f"gather_state() on {ranks.world_size} ranks needs torch.distributed, which is not initialised here: save "
            "state_dict() of every rank and join them with penstock.merge_states()"
        )
    size = distributed.get_world_size(group)
    if size != ranks.world_size:
        raise ConfigError(
            f"the process group has {size} ranks, the loader {ranks.world_size}: pass the group of the loader's ranks"
        )
    mine: dict[str, str] | str
    try:
        mine = own()
    except PenstockError as error:
        mine = str(error)
    answers: list[dict[str, str] | str] = [""] * size
    distributed.all_gather_object(answers, mine, group=group)
    if failed := [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if isinstance(answer, str)]:
        raise StateError(f"the state of all ranks cannot be taken: {'; '.join(failed)}")
    return [answer for answer in answers if isinstance(answer, dict)]
