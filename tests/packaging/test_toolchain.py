"""`scripts/require.sh`: one line that says what is missing, why it is needed and how to get it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.run import ROOT


def _program(folder: Path, name: str, output: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)


def _require(tool: str, programs: Path, **environment: str) -> str:
    """What is said with these programs in front of the machine's own; nothing when all is there."""
    path = f"{programs}:{os.environ['PATH']}"
    ended = subprocess.run(
        [ROOT / "scripts" / "require.sh", tool],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode == 0) == (ended.stderr == "")
    assert ended.stderr.count("\n") <= 1
    return ended.stderr


def test_node_is_as_new_as_the_page_asks_for(tmp_path: Path) -> None:
    _program(tmp_path, "npm", "10.0.0")
    needed = json.loads((ROOT / "frontend" / "package.json").read_text())["engines"]["node"].removeprefix(">=")
    _program(tmp_path, "node", f"v{needed}.0")
    assert _require("node", tmp_path) == ""
    _program(tmp_path, "node", "v20.18.3")
    assert f"Node {needed} (found 20.18.3) is missing" in _require("node", tmp_path)


@pytest.mark.parametrize("has_rustup", [True, False])
def test_old_rust_is_updated_with_what_the_machine_has(tmp_path: Path, has_rustup: bool) -> None:
    _program(tmp_path, "rustc", "rustc 1.80.0 (abc 2024-07-21)")
    _program(tmp_path, "cargo", "cargo 1.80.0")
    for name in ("bash", "dirname", "sed", "sort", "head", "cut"):
        (tmp_path / name).symlink_to(Path("/usr/bin", name))
    if has_rustup:
        _program(tmp_path, "rustup", "rustup 1.28.0")
    said = _require("rust", tmp_path, PATH=str(tmp_path))
    assert "Rust 1.88 (found 1.80.0) is missing" in said
    assert ("rustup update stable" if has_rustup else "https://sh.rustup.rs") in said


def test_java_of_java_home_counts_and_has_to_be_17(tmp_path: Path) -> None:
    in_path, home = tmp_path / "path", tmp_path / "home"
    _program(in_path, "java", 'openjdk version "21.0.2" 2024-01-16')
    _program(in_path, "mvn", "Apache Maven 3.9")
    _program(home, "bin/java", 'openjdk version "17.0.15" 2025-04-15')
    assert "21.0.2) is missing" in _require("java", in_path, JAVA_HOME="")
    assert _require("java", in_path, JAVA_HOME=str(home)) == ""
    _program(home, "bin/java", 'openjdk version "17-ea" 2021-09-14')
    assert _require("java", in_path, JAVA_HOME=str(home)) == ""
    _program(home, "bin/java", 'openjdk version "1.8.0_402"')
    assert "1.8.0) is missing" in _require("java", in_path, JAVA_HOME=str(home))
