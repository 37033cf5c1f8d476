import sys
from types import SimpleNamespace

import pytest

from penstock._errors import ConfigError
from penstock._ranks import Ranks, find_ranks, find_run


def test_alone_without_anything() -> None:
    assert find_ranks(environ={}) == Ranks(0, 1, 1)


def test_arguments_win() -> None:
    assert find_ranks(2, 4, environ={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}) == Ranks(2, 4, 2)


@pytest.mark.parametrize(("rank", "world_size"), [(1, None), (None, 2)])
def test_half_of_the_arguments_is_refused(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(ConfigError, match="both or neither"):
        find_ranks(rank, world_size, environ={})


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_impossible_ranks_are_refused(rank: int, world_size: int) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        find_ranks(rank, world_size, environ={})


def test_environment_of_torchrun() -> None:
    assert find_ranks(environ={"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}) == Ranks(3, 8, 4)


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"WORLD_SIZE": "2"}])
def test_half_of_the_environment_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="set both"):
        find_ranks(environ=variables)


def test_environment_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANK='x'"):
        find_ranks(environ={"RANK": "x", "WORLD_SIZE": "2"})


def test_slurm_counts_inside_a_step_only() -> None:
    variables = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    assert find_ranks(environ=variables) == Ranks(0, 1, 1)
    assert find_ranks(environ=variables | {"SLURM_STEP_ID": "0"}) == Ranks(1, 4, 2)


@pytest.mark.parametrize(
    ("tasks", "node", "expected"),
    [
        ("8", "0", 8),
        ("8(x2)", "1", 8),
        ("4(x2),3", "0", 4),
        ("4(x2),3", "1", 4),
        ("4(x2),3", "2", 3),
        ("3,4(x2)", "", 4),
        ("3,4(x2)", "7", 4),
        ("something new", "0", 5),
        ("", "0", 5),
    ],
)
def test_ranks_of_this_machine_as_slurm_counts_them(tasks: str, node: str, expected: int) -> None:
    variables = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": node, "SLURM_NTASKS_PER_NODE": "5"}
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "64"} | variables
    assert find_ranks(environ=step) == Ranks(1, 64, expected)
    # A process group that a script of the step makes is on the same machines.
    assert find_ranks(3, 64, environ=step).local_world_size == expected
    # torchrun counts what it starts itself.
    assert find_ranks(environ=step | {"LOCAL_WORLD_SIZE": "2"}).local_world_size == 2


def test_torch_distributed_in_use_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert find_ranks(environ={"RANK": "0", "WORLD_SIZE": "8"}) == Ranks(1, 2, 1)
    group.is_initialized = lambda: False
    assert find_ranks(environ={"RANK": "0", "WORLD_SIZE": "8"}) == Ranks(0, 8, 1)


def test_run_name_follows_its_order() -> None:
    variables = {"PENSTOCK_RUN": "a", "TORCHELASTIC_RUN_ID": "b", "SLURM_JOB_ID": "c"}
    assert find_run("mine", environ=variables) == "mine"
    assert find_run(environ=variables) == "a"
    assert find_run(environ={"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "c"}) == "c"
    assert find_run(environ={}) == find_run(environ={}) != ""
