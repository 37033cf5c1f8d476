"""`make run` starts the server with the settings that our own messages tell people to set."""

import os
import subprocess

import pytest

from harness.run import ROOT

OF_RUN = {"PORT", "DATA_FOLDER", "PENSTOCK_DATA_FOLDER", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}


@pytest.mark.parametrize(
    ("variables", "folder", "options"),
    [
        ({}, f"{ROOT}/.data", ""),
        ({"PENSTOCK_SERVER__PORT": "8123"}, f"{ROOT}/.data", ""),
        ({"PENSTOCK_DATA_FOLDER": "/elsewhere"}, "/elsewhere", ""),
        ({"PORT": "8123", "DATA_FOLDER": "/of/make", "PENSTOCK_DATA_FOLDER": "/elsewhere"}, "/of/make", " --port 8123"),
    ],
)
def test_variables_that_are_set_reach_the_server(variables: dict[str, str], folder: str, options: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in OF_RUN} | variables
    told = subprocess.run(
        ["make", "--dry-run", "run"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )

    assert told.stdout.splitlines()[-1] == (
        f'PENSTOCK_DATA_FOLDER="{folder}" exec .venv/bin/penstock up --demo{options}'
    )
