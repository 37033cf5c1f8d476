"""The SDK installs alone, the server with it, and neither wheel tells where it was built."""

import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest

from harness.checkout import run_command
from harness.run import ROOT

SERVER_ONLY = ("fastapi", "sqlalchemy", "celery", "duckdb", "alembic", "cassandra", "uvicorn", "penstock_server")


@pytest.fixture(scope="module")
def sdk_environment(sdk_wheel: Path, make_environment: Callable[..., Path]) -> Path:
    return make_environment(sdk_wheel)


@pytest.fixture(scope="module")
def whole_environment(make_environment: Callable[..., Path]) -> Path:
    return make_environment(ROOT / "sdk", ROOT)


def wheel_requirements(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return {line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line}


def test_sdk_alone_brings_no_server_dependency(sdk_environment: Path) -> None:
    script = f"import importlib.util as u; print([n for n in {SERVER_ONLY!r} + ('torch',) if u.find_spec(n)])"
    assert run_command(sdk_environment / "python", "-c", script).strip() == "[]"


def test_sdk_alone_has_the_penstock_command(sdk_environment: Path) -> None:
    assert "datasets" in run_command(sdk_environment / "penstock", "--help")


def test_sdk_import_loads_neither_torch_nor_the_native_core(sdk_environment: Path) -> None:
    script = "import penstock, sys; print(sorted({'torch', 'penstock._native', 'pyarrow'} & set(sys.modules)))"
    assert run_command(sdk_environment / "python", "-c", script).strip() == "[]"


def test_sdk_alone_reads_and_writes_a_store(sdk_environment: Path, tmp_path: Path) -> None:
    script = f"""
import json
from penstock._native import Store
store = Store.open(json.dumps({{"kind": "lmdb", "path": {str(tmp_path)!r}, "is_read_only": False}}))
store.write("samples", b"d" * 16, [(b"o" * 16, [("image", b"bytes of a picture")])])
print(store.read("samples", b"d" * 16, [b"o" * 16])[0]["image"])
"""
    assert run_command(sdk_environment / "python", "-c", script).strip() == "b'bytes of a picture'"


def test_clone_installs_server_and_sdk_with_one_command(whole_environment: Path) -> None:
    text = run_command(whole_environment / "penstock", "--help")
    assert "up" in text
    assert "--demo" in run_command(whole_environment / "penstock", "up", "--help")


def test_server_wheel_carries_migrations_page_and_no_direct_reference(server_wheel: Path) -> None:
    names = zipfile.ZipFile(server_wheel).namelist()
    assert any(name.startswith("penstock_server/_migrations/versions/") for name in names)
    assert any(name.startswith("penstock_server/_migrations/cql/") for name in names)
    assert "penstock_server/_page/index.html" in names
    assert not [requirement for requirement in wheel_requirements(server_wheel) if "@" in requirement]


@pytest.mark.parametrize("kind", ["sdk_wheel", "server_wheel"])
def test_wheel_carries_its_licence(kind: str, request: pytest.FixtureRequest) -> None:
    with zipfile.ZipFile(request.getfixturevalue(kind)) as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    assert texts == [(ROOT / "LICENSE").read_bytes()]


@pytest.mark.parametrize("kind", ["sdk_wheel", "server_wheel"])
def test_wheel_names_no_path_of_the_building_machine(kind: str, request: pytest.FixtureRequest) -> None:
    wheel: Path = request.getfixturevalue(kind)
    marks = [str(ROOT).encode() + b"/", str(Path.home()).encode() + b"/"]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert not [mark for mark in marks if mark in content], f"{name} in {wheel.name}"
