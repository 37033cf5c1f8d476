"""Free memory as the machine and its containers see it, and the read-ahead that follows from it."""

from pathlib import Path

import pytest

from penstock import _engine
from penstock._memory import available_bytes

MIB = 1 << 20
GIB = 1 << 30


def machine(root: Path, files: dict[str, str], *, available: int = 8 * GIB, groups: str = "0::/\n") -> Path:
    described = {
        "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {available // 1024} kB\n",
        "proc/self/cgroup": groups,
    }
    for name, text in (described | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_groups_the_machine_decides(tmp_path: Path) -> None:
    assert available_bytes(machine(tmp_path, {})) == 8 * GIB


def test_nothing_known_is_none(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None


def test_container_limit_counts_with_its_cached_files(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {256 * MIB}\nactive_file 9\n",
    }
    assert available_bytes(machine(tmp_path, files)) == GIB + 256 * MIB


def test_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        "sys/fs/cgroup/job/step/memory.current": "5\n",
        "sys/fs/cgroup/job/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/job/memory.current": f"{GIB // 4}\n",
    }
    assert available_bytes(machine(tmp_path, files, groups="0::/job/step\n")) == GIB - GIB // 4


def test_first_version_of_control_groups(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": f"{GIB // 2}\n",
        "sys/fs/cgroup/memory/docker/x/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 8}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    }
    groups = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n"
    assert available_bytes(machine(tmp_path, files, groups=groups)) == GIB // 2 + GIB // 8


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/memory.current": "20\n"}
    assert available_bytes(machine(tmp_path, files)) == 0


@pytest.mark.parametrize(
    ("free", "local_ranks", "loaders", "batch_bytes", "expected"),
    [
        (64 * GIB, 1, 1, 1, GIB),
        (2 * GIB, 1, 1, 1, GIB // 2),
        (64 * GIB, 4, 2, 1, GIB // 8),
        (64 * GIB, 8, 1, GIB, GIB),
        (0, 1, 1, 7, 7),
        (None, 2, 1, 1, GIB // 2),
    ],
)
def test_read_ahead_is_a_share_and_never_less_than_a_batch_needs(
    monkeypatch: pytest.MonkeyPatch, free: int | None, local_ranks: int, loaders: int, batch_bytes: int, expected: int
) -> None:
    monkeypatch.setattr(_engine, "available_bytes", lambda: free)
    assert _engine.default_prefetch_bytes(local_ranks, loaders, batch_bytes=batch_bytes) == expected
