"""Running a command in this checkout that must succeed."""

import subprocess
from pathlib import Path

from harness.run import ROOT

UV = ROOT / "build" / "tools" / "bin" / "uv"


def run_command(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Returns what the command printed; fails the test with all of its output when it did not end well."""
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
