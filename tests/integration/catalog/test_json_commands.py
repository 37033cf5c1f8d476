"""The server's commands for programs: one JSON document on stdout, errors as JSON on stderr, exit codes to trust."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from harness.penstock_processes import PENSTOCK, START_SECONDS, folder_settings, start_program
from harness.services import Services

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return folder_settings(tmp_path)


@pytest.fixture
def command(services: Services, settings: dict[str, str]) -> Command:
    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = services.run.environment(settings | more)
        return subprocess.run(
            [str(PENSTOCK), *arguments, "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def error_of(refused: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert refused.stdout == ""
    error: dict[str, object] = json.loads(refused.stderr)["error"]
    assert error["exit_code"] == refused.returncode
    return error


@pytest.mark.timeout(600)
def test_up_and_what_talks_to_it(services: Services, settings: dict[str, str], command: Command) -> None:
    server = start_program(services.run, "json-server", [PENSTOCK, "up", "--port", "0", "--json"], settings)
    try:
        server.wait_for(re.compile(r"^\{.*\}$", re.MULTILINE), seconds=START_SECONDS)
        # One line, and that line alone.
        ready = json.loads(server.output())
        assert set(ready) == {"url", "login_url", "pid"}
        assert (ready["pid"], ready["login_url"].partition("/login#code=")[0]) == (server.pid, ready["url"])
        code = ready["login_url"].partition("#code=")[2]
        assert httpx.post(f"{ready['url']}/api/v1/session", json={"code": code}).status_code == 200

        link = json.loads(command("login-link").stdout)["login_url"]
        assert link.startswith(f"{ready['url']}/login#code=")
        taken = error_of(command("up", "--port", "0"))
        assert taken["code"] == "command.refused"
        assert f"pid {server.pid}" in str(taken["detail"])
    finally:
        assert server.stop() == 0
    assert len(server.output().splitlines()) == 1


@pytest.mark.timeout(300)
def test_migrate_says_whether_it_changed_anything(command: Command) -> None:
    assert json.loads(command("migrate").stdout) == {"has_changed": True}
    assert json.loads(command("migrate").stdout) == {"has_changed": False}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["up", "worker", "migrate", "login-link", "demo"])
def test_wrong_settings_are_2_and_all_listed(command: Command, name: str) -> None:
    refused = command(name, PENSTOCK_SERVER__PORT="eighty", PENSTOCK_STORE__KIND="cql")

    error = error_of(refused)
    assert (refused.returncode, error["code"]) == (2, "settings.invalid")
    assert str(error["detail"]).count("\n  - PENSTOCK_") == 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["worker", "login-link"])
def test_no_catalog_is_1(command: Command, name: str) -> None:
    refused = command(name)

    assert (refused.returncode, error_of(refused)["code"]) == (1, "command.refused")


@pytest.mark.timeout(300)
def test_wrong_settings_of_the_worker_itself_are_2(command: Command) -> None:
    assert command("migrate").returncode == 0

    refused = command("worker", PENSTOCK_WORKER_LEASE_SECONDS="soon")

    assert refused.returncode == 2
    assert set(json.loads(refused.stdout)) == {"kind", "pid"}
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("settings.invalid", 2)


@pytest.mark.timeout(300)
def test_demo_without_a_server_is_5(command: Command) -> None:
    refused = command("demo", PENSTOCK_URL="http://127.0.0.1:9", PENSTOCK_TOKEN="pst_x")

    assert refused.returncode == 5
    assert error_of(refused)["code"] == "sdk.unreachable"
