from inspect import signature
from typing import Any

import pytest

from penstock import Client, _arguments
from penstock._arguments import LoaderArguments
from penstock._errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "batch_size": 1, "shuffle": False, "drop_last": False, "pin_memory": False, "in_order": False, "seed": 0,
    "fields": None, "columns": None, "decode": "auto", "output": "torch", "rank": None, "world_size": None,
    "last_batch": None, "on_error": "raise", "max_failed_share": 0.01, "max_displacement": 8, "prefetch_bytes": None,
    "window_bytes": None, "lanes": None, "store_wait_seconds": 60.0, "run": None, "has_telemetry": True,
    "delivered_log": None, "torch_arguments": {},
}  # fmt: skip


def checked(**changes: Any) -> LoaderArguments:
    return LoaderArguments.checked(**DEFAULTS | changes)


def test_these_are_the_defaults_of_a_loader() -> None:
    parameters = signature(Client.loader).parameters
    given = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    given["has_telemetry"] = given.pop("telemetry")
    assert given | {"torch_arguments": {}} == DEFAULTS | {"dataset": None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.0}, "whole number"),
        ({"batch_size": True}, "whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 64}, "seed"),
        ({"decode": "jpeg"}, "decode='jpeg'"),
        ({"output": "tensorflow"}, "'torch', 'numpy'"),
        ({"last_batch": "keep"}, "'drop', 'partial', 'pad'"),
        ({"drop_last": True, "last_batch": "pad"}, "contradict"),
        ({"on_error": "ignore"}, "on_error='ignore': expected one of 'raise', 'skip', 'replace'"),
        ({"max_failed_share": 1.5}, "max_failed_share is 1.5: expected a number from 0 to 1"),
        ({"max_failed_share": float("nan")}, "max_failed_share is nan"),
        ({"max_failed_share": "1%"}, "max_failed_share is '1%'"),
        ({"max_displacement": 0}, "max_displacement is 0: expected from 1 to"),
        ({"max_displacement": 2**63}, "max_displacement is 9223372036854775808: expected"),
        ({"window_bytes": 0}, "window_bytes is 0"),
        ({"delivered_log": 3}, "delivered_log=3: expected the path of a file"),
        ({"lanes": 0}, "lanes is 0: expected from 1 to 64"),
        ({"lanes": 65}, "lanes is 65: expected from 1 to 64"),
        ({"lanes": "two"}, "lanes is 'two': expected a whole number"),
        ({"prefetch_bytes": 1 << 64}, "prefetch_bytes"),
        ({"store_wait_seconds": -1}, "store_wait_seconds is -1"),
        ({"store_wait_seconds": float("inf")}, "store_wait_seconds is inf"),
        ({"fields": "image"}, r"\['image'\]"),
        ({"columns": ["a", "a"]}, "twice"),
        ({"prefetch_bytes": 0}, "prefetch_bytes"),
        ({"pin_memory": True, "output": "numpy"}, "pin_memory"),
        ({"torch_arguments": {"collate_fn": list}}, "collate_fn is not taken by this loader yet"),
        ({"torch_arguments": {"transform": list}}, "transform"),
        ({"torch_arguments": {"sampler": []}}, "shuffle, seed"),
    ],
)
def test_wrong_arguments_say_what_to_do(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(**changes)


def test_unknown_argument_is_a_type_error_as_always() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        checked(torch_arguments={"batchsize": 3})


def test_torch_arguments_are_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arguments, "_explained_already", set())
    with pytest.warns(UserWarning, match=r"num_workers=8 has no effect"):
        checked(torch_arguments={"num_workers": 8})
    checked(torch_arguments={"num_workers": 8})
    with pytest.warns(UserWarning, match="prefetch_bytes"):
        checked(torch_arguments={"prefetch_factor": 2})


def test_torch_defaults_are_silent() -> None:
    checked(torch_arguments={"num_workers": 0, "collate_fn": None, "prefetch_factor": None, "timeout": 0})


@pytest.mark.parametrize(
    ("changes", "world_size", "expected"),
    [({}, 1, "partial"), ({}, 2, "pad"), ({"drop_last": True}, 2, "drop"), ({"last_batch": "partial"}, 2, "partial")],
)
def test_last_batch_depends_on_the_world(changes: dict[str, Any], world_size: int, expected: str) -> None:
    assert checked(**changes).effective_last_batch(world_size) == expected
