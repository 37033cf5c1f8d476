"""How much memory this process may still take."""

from collections.abc import Iterator
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int | None:
    """What the machine and the control groups of this process (a container's limit) leave; None when unknown."""
    found = [_machine_bytes(root), *_group_bytes(root)]
    known = [count for count in found if count is not None]
    return max(0, min(known)) if known else None


def _machine_bytes(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group_bytes(root: Path) -> Iterator[int | None]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        if not controllers:
            folder, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            folder = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # The limit of any group above counts too. Inside a container the place may be the host's: then only the top is.
        group = folder / place.strip("/")
        while group.is_relative_to(folder):
            yield _headroom_bytes(group, *names)
            group = group.parent


def _headroom_bytes(group: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    limit, usage = _number(group / limit_name), _number(group / usage_name)
    if limit is None or usage is None:
        return None
    cache = next((line.split()[1] for line in _lines(group / "memory.stat") if line.startswith(f"{cache_name} ")), "0")
    # Cached files count as used, but make room when memory is asked for.
    return limit - usage + int(cache)


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
