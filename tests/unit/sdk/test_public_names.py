import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[3]


def test_all_is_sorted_and_every_name_exists() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert dir(penstock) == penstock.__all__


def test_every_error_is_public_and_has_one_root() -> None:
    module = importlib.import_module("penstock._errors")
    errors = {name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert errors <= set(penstock.__all__)
    assert all(issubclass(getattr(penstock, name), penstock.PenstockError) for name in errors)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = penstock.nothing_like_this


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import penstock", ("torch", "penstock._native", "pyarrow", "numpy", "httpx", "PIL", "nvidia.dali")),
        ("import penstock; penstock.Client('http://127.0.0.1:9')", ("torch", "penstock._native", "pyarrow", "numpy")),
        ("from penstock._cli import main", ("torch", "penstock._native", "pyarrow", "numpy", "penstock_server")),
        ("from penstock.contract import codes, ids, kinds, members, names, records, telemetry", ("httpx", "numpy")),
        ("from penstock import Loader", ("torch", "penstock._native")),
    ],
)
def test_importing_loads_only_what_is_needed(code: str, absent: tuple[str, ...]) -> None:
    check = f"{code}; import sys; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_one_version_number() -> None:
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    assert penstock.__version__ == project["version"]
