"""What commands say to people, and how they end."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock_server.settings import Settings, SettingsInvalid, load_settings

EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130


class CommandRefused(Exception):
    """A command cannot go on; the message says what is wrong and what to do."""


def say(message: str) -> None:
    print(message, flush=True)


def complain(message: str) -> None:
    print(f"penstock: {message}", file=sys.stderr, flush=True)


def with_settings(
    command: Callable[[Settings], int],
    *,
    data_folder: Path | None = None,
    host: str | None = None,
    port: int | None = None,
) -> int:
    """Runs a command with its settings; every known failure is one clear message and an exit code."""
    overrides: dict[str, Any] = {}
    if data_folder is not None:
        overrides["data_folder"] = data_folder
    server = {"host": host, "port": port}
    overrides["server"] = {key: value for key, value in server.items() if value is not None}
    try:
        settings = load_settings(**overrides)
    except SettingsInvalid as error:
        complain("these settings cannot be used:")
        for problem in error.problems:
            print(f"  - {problem}", file=sys.stderr)
        return EXIT_SETTINGS
    try:
        return command(settings)
    except CommandRefused as error:
        complain(str(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
