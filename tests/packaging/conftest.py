from collections.abc import Callable
from pathlib import Path

import pytest

from harness.checkout import UV, run_command
from harness.run import ROOT


@pytest.fixture(scope="session")
def sdk_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdk-wheel")
    run_command(UV, "build", "--wheel", "--out-dir", folder, ROOT / "sdk")
    return next(folder.glob("penstock-*.whl"))


@pytest.fixture(scope="session")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server-wheel")
    run_command(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    return next(folder.glob("penstock_server-*.whl"))


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a clean environment, installs what is asked for under the lock's versions, returns its `bin`."""

    def make(*requirements: str | Path) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        run_command(UV, "venv", "-q", "--python", "3.11", folder)
        # The lock as a constraint: the newest release of a dependency must not decide whether our tests pass.
        locked = (ROOT / "requirements" / "run.lock").read_text().splitlines()
        constraints = folder / "constraints.txt"
        constraints.write_text(
            "\n".join(line.split(" ")[0] for line in locked if "==" in line and not line.startswith(" "))
        )
        run_command(UV, "pip", "install", "-q", "--python", folder / "bin" / "python", "-c", constraints, *requirements)
        return folder / "bin"

    return make
