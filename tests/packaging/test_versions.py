"""The check of locks and of the one version number, on a copy of the files that it reads."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.run import ROOT

READ = (
    "docker-compose.yml",
    "frontend/package-lock.json",
    "frontend/package.json",
    "pyproject.toml",
    "requirements/run.in",
    "requirements/run.lock",
    "requirements/test.in",
    "requirements/test.lock",
    "scripts/check_locks.py",
    "sdk/Cargo.toml",
    "sdk/pyproject.toml",
    "sdk/python/penstock/_version.py",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _complaints(checkout: Path) -> str:
    command = [sys.executable, str(checkout / "scripts" / "check_locks.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == (ended.stderr == "")
    return ended.stderr


def test_this_checkout_has_one_version_and_fitting_locks(checkout: Path) -> None:
    assert _complaints(checkout) == ""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pyproject.toml", '"penstock==', '"penstock==9.'),
        ("pyproject.toml", '"penstock==', '"penstock>='),
        ("pyproject.toml", "penstock[torch]==", "penstock[torch]==9."),
        ("docker-compose.yml", "image: penstock-server:", "image: penstock-server:9."),
        ("sdk/python/penstock/_version.py", '= "', '= "9.'),
        ("sdk/pyproject.toml", 'version = "', 'version = "9.'),
        ("frontend/package-lock.json", '"version": "', '"version": "9.'),
    ],
)
def test_another_version_anywhere_is_named(checkout: Path, name: str, old: str, new: str) -> None:
    text = (checkout / name).read_text()
    assert old in text
    (checkout / name).write_text(text.replace(old, new, 1))
    complaints = _complaints(checkout)
    assert f"{name}: 9." in complaints or f"{name}: >=" in complaints
