"""What commands say to people and to programs, and how they are refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock import ConfigError, PenstockError
from penstock_server.settings import Settings, SettingsInvalid, load_settings


class CommandRefused(PenstockError):
    """A command cannot go on; the message says what is wrong and what to do."""

    code = "command.refused"


class SettingsRefused(ConfigError):
    """The settings cannot be used; the message lists every problem."""

    code = "settings.invalid"

    def __init__(self, invalid: SettingsInvalid) -> None:
        super().__init__("\n  - ".join(["these settings cannot be used:", *invalid.problems]))


def tell(sentence: str, document: Mapping[str, object], *, is_json: bool) -> None:
    """One line on stdout: the sentence for people, the document for programs."""
    print(json.dumps(document) if is_json else sentence, flush=True)


def with_settings(
    command: Callable[[Settings], int],
    *,
    data_folder: Path | None = None,
    host: str | None = None,
    port: int | None = None,
) -> int:
    """Runs a command with its settings; the `penstock` program turns what is raised into words and an exit code."""
    overrides: dict[str, Any] = {}
    if data_folder is not None:
        overrides["data_folder"] = data_folder
    server = {"host": host, "port": port}
    overrides["server"] = {key: value for key, value in server.items() if value is not None}
    try:
        settings = load_settings(**overrides)
    except SettingsInvalid as error:
        raise SettingsRefused(error) from None
    return command(settings)
