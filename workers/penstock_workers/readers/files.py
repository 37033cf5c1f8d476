"""Files below one folder: found in order, and never outside of it."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from penstock_workers.readers.listing import Problem

FILE_LIMIT_BYTES = 512 * 1024 * 1024
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})


class Unreadable(ValueError):
    """A file that cannot be taken; the message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder, already resolved, and the stable name that its samples carry instead of its path."""

    root: Path
    name: str

    def identity(self, relative: str) -> tuple[str, str]:
        """(source, key) of a file: the folder it lies in, by name, and its own name."""
        path = PurePosixPath(relative)
        parts = [self.name, *path.parent.parts]
        return "/".join(parts), path.name

    def read(self, relative: str) -> bytes:
        """The bytes of a regular file inside the folder."""
        path = self.locate(relative)
        try:
            size = path.stat().st_size
            if size > FILE_LIMIT_BYTES:
                msg = f"the file has {size:,} bytes; at most {FILE_LIMIT_BYTES:,} can be ingested"
                raise Unreadable(msg)
            return path.read_bytes()
        except OSError as error:
            msg = f"the file cannot be read: {error.strerror}"
            raise Unreadable(msg) from None

    def size_bytes(self, relative: str) -> int:
        """How large the file is; 0 when it cannot be read, which reading it will tell."""
        try:
            return self.locate(relative).stat().st_size
        except (Unreadable, OSError):
            return 0

    def locate(self, relative: str) -> Path:
        """The real path of a regular file; a link may point inside the folder only."""
        if not relative or "\x00" in relative or os.path.isabs(relative) or ".." in PurePosixPath(relative).parts:
            msg = f"'{relative}' is not a path below the folder; write it relative to the folder"
            raise Unreadable(msg)
        try:
            path = (self.root / relative).resolve(strict=True)
            mode = path.stat().st_mode
        except FileNotFoundError:
            msg = f"the file '{relative}' does not exist"
            raise Unreadable(msg) from None
        except (OSError, RuntimeError) as error:
            msg = f"'{relative}' cannot be opened: {getattr(error, 'strerror', None) or 'a circle of links'}"
            raise Unreadable(msg) from None
        if not path.is_relative_to(self.root):
            msg = "a link that leads out of the folder"
            raise Unreadable(msg)
        if not stat.S_ISREG(mode):
            msg = "not a regular file"
            raise Unreadable(msg)
        return path


def walk(source: FolderSource) -> Iterator[str | Problem]:
    """Relative paths of all visible files, in order; what cannot be taken comes as a problem."""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(source.root / folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield Problem(_shown(folder), f"the folder cannot be listed: {error.strerror}")
            continue
        below: list[str] = []
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower() in _SYSTEM_FILES:
                continue
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                below.append(relative)
            else:
                yield _checked(source, relative)
        pending.extend(reversed(below))


def _checked(source: FolderSource, relative: str) -> str | Problem:
    if _shown(relative) != relative:
        return Problem(_shown(relative), "the name is not valid UTF-8")
    try:
        source.locate(relative)
    except Unreadable as error:
        return Problem(relative, str(error))
    return relative


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
