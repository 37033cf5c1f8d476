"""The discovery file is private and replaced whole; logs hold no secrets."""

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock_server.discovery import Discovery, read_discovery, remove_discovery, write_discovery
from penstock_server.logging import hide_secrets

SERVER = Discovery(url="http://127.0.0.1:8080", token="pst_x", pid=4242, data_folder="/data")


def test_the_file_and_its_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "server.json"
    before = os.umask(0)
    try:
        write_discovery(path, SERVER)
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert read_discovery(path) == SERVER
    assert "pst_x" not in repr(SERVER)


def test_a_readable_file_of_an_earlier_time_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text("{}")
    path.chmod(0o644)

    write_discovery(path, SERVER)

    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_another_server_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    write_discovery(path, SERVER)

    remove_discovery(path, pid=1)
    assert path.exists()
    remove_discovery(path, pid=4242)
    assert not path.exists()
    remove_discovery(path, pid=4242)


def test_a_damaged_file_is_no_server(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    for text in ("", "[]", '{"url": 1}', "\x00"):
        path.write_text(text)
        assert read_discovery(path) is None


def test_secrets_are_hidden_wherever_they_stand() -> None:
    token = "pst_0a1b2c3d_" + "f" * 64
    entry = {
        "event": f"used {token} at http://127.0.0.1/login#code=abc-DEF_123",
        "password": "hunter2",
        "Authorization": "Bearer x",
        "csrf_token": "y",
        "nested": {"secret": "hunter2", "url": "redis://:hunter2@127.0.0.1/0", "list": [token]},
        "exception": f"Traceback: postgresql://u:hunter2@127.0.0.1/x {token}",
        "token_id": "keep-me",
    }

    text = json.dumps(hide_secrets(None, "info", entry))

    for secret in (token, "hunter2", "abc-DEF_123", "Bearer x"):
        assert secret not in text
    assert "keep-me" in text


def test_json_logs_are_one_object_a_line_for_us_and_for_libraries() -> None:
    code = """
import logging, structlog
from penstock_server.logging import configure_logging
from penstock_server.settings import LogSettings
configure_logging(LogSettings(level="info", format="json"))
structlog.get_logger("ours").info("happened", number=1)
logging.getLogger("theirs").warning("said %s", "pst_0a1b2c3d_" + "f" * 64)
try:
    raise ValueError("x")
except ValueError:
    structlog.get_logger("ours").exception("failed")
structlog.get_logger("ours").debug("unheard")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours, theirs, failed = [json.loads(line) for line in done.stderr.splitlines()]

    assert (ours["event"], ours["number"], ours["level"], ours["logger"]) == ("happened", 1, "info", "ours")
    assert theirs["event"] == "said ***"
    assert "ValueError: x" in failed["exception"]
    assert ours["timestamp"].endswith("Z")
