"""Which machine an embedded store lives on, so that a loader elsewhere can be told instead of failing."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from uuid import UUID, uuid4

STORE_ID_FILE = "store-id"


def store_id(folder: Path) -> UUID:
    """The id of this store folder, made at its first use."""
    path = folder / STORE_ID_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Written aside and linked: another process that starts now sees a whole file or none.
        draft = folder / f".{STORE_ID_FILE}.{os.getpid()}"
        draft.write_text(f"{uuid4()}\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return UUID(path.read_text().strip())


def machine_id(folder: Path) -> str:
    """Names this machine and store; says nothing about either to a stranger."""
    return hashlib.sha256(f"{_machine()}:{store_id(folder)}".encode()).hexdigest()


def _machine() -> str:
    for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    return platform.node()
