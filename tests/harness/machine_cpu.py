"""How much of the machine's cores was in use, by all processes together."""

from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE_COLUMNS = (3, 4)


class MachineCpu:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._ticks = _ticks()

    def used_share(self) -> float:
        """Of all cores, since then: 1 when none had a moment to spare."""
        spent = [now - then for now, then in zip(_ticks(), self._ticks, strict=True)]
        idle = sum(spent[column] for column in _IDLE_COLUMNS)
        return 1 - idle / max(1, sum(spent))


def _ticks() -> list[int]:
    """Of all cores together: user, nice, system, idle, waiting for disks, interrupts (two columns), stolen."""
    first_line = _STAT.read_text().splitlines()[0]
    return [int(each) for each in first_line.split()[1:9]]
