"""The data folder: private, writable, and of one server at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_server.commands.console import CommandRefused

LOCK_FILE = "server.lock"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the kernel gives it back however the process ends."""
    handle = _open_lock(folder)
    try:
        _lock(handle, folder)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def prepare_state_folder(folder: Path) -> None:
    """Where the discovery file will stand."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_writable = os.access(folder, os.W_OK | os.X_OK)
        reason = "no right to write"
    except OSError as error:
        is_writable, reason = False, error.strerror or str(error)
    if not is_writable:
        raise CommandRefused(
            f"the state folder {folder} cannot be written ({reason}): make it writable, or choose another with "
            "PENSTOCK_STATE_FOLDER"
        )


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandRefused(
            f"the data folder {folder} cannot be written ({error.strerror}): make it a writable folder of your own, "
            "or choose another with --data-folder or PENSTOCK_DATA_FOLDER"
        ) from None


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode().strip() or "unknown"
        raise CommandRefused(
            f"a Penstock server (pid {pid}) already uses the data folder {folder}: `penstock login-link` opens it, "
            f"`kill {pid}` stops it, --data-folder chooses another folder"
        ) from None
    except OSError as error:
        raise CommandRefused(
            f"the data folder {folder} cannot be locked ({error.strerror}): choose one on a local disk"
        ) from None
