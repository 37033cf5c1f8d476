"""How a program of the same user finds a local server: one file that nobody else can read."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Discovery:
    url: str
    token: str = field(repr=False)
    pid: int
    data_folder: str


def write_discovery(path: Path, discovery: Discovery) -> None:
    """Replaces the file in one step; it has mode 0600 from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{discovery.pid}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(discovery), file)
    draft.replace(path)


def read_discovery(path: Path) -> Discovery | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Discovery(
            url=str(document["url"]),
            token=str(document["token"]),
            pid=int(document["pid"]),
            data_folder=str(document["data_folder"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_discovery(path: Path, *, pid: int) -> None:
    """Removes the file if it is ours: another server may have started since."""
    found = read_discovery(path)
    if found is not None and found.pid == pid:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
