"""Which tables of docs/benchmarks.md a run rewrites, in a small checkout with benchmarks that measure nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks.py"
BENCH = """
import json
figures = [{"name": "link", "value": 0.6, "unit": "x", "reach": "0.5 to 0.7", "ok": True, "spread": None}]
print(json.dumps({"bench": "any", "figures": figures}))
"""
OLD_PAGE = """# Benchmarks

<!-- edge -->
old edge
<!-- end edge -->

Words.

<!-- plan -->
old plan
<!-- end plan -->
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("scripts", "docs", "tests/bench"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "docs/benchmarks.md").write_text(OLD_PAGE)
    for name in ("edge", "plan"):
        (tmp_path / f"tests/bench/bench_{name}.py").write_text(BENCH)
    return tmp_path


def run(checkout: Path, *names: str, is_quick: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {"PENSTOCK_BENCH_QUICK": "1"} if is_quick else {}
    argv: list[str | Path] = [sys.executable, checkout / "scripts/benchmarks.py", *names]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def page(checkout: Path) -> str:
    return (checkout / "docs/benchmarks.md").read_text()


def test_all_tables_are_rewritten_when_none_is_named(checkout: Path) -> None:
    assert run(checkout).returncode == 0
    assert "old" not in page(checkout)
    assert page(checkout).count("| link | 0.6 x | - | 0.5 to 0.7 | yes |") == 2
    assert "Words." in page(checkout)


def test_only_the_named_benchmarks_run_and_only_their_tables_change(checkout: Path) -> None:
    ended = run(checkout, "plan")
    assert ended.stdout.count('"bench"') == 1
    assert "old edge" in page(checkout)
    assert "old plan" not in page(checkout)


def test_unknown_name_is_refused_with_the_known_ones_before_anything_runs(checkout: Path) -> None:
    ended = run(checkout, "plan", "egde")
    assert ended.returncode != 0
    assert "there is no benchmark egde; there are: edge plan" in ended.stderr
    assert ended.stdout == ""
    assert page(checkout) == OLD_PAGE


def test_quick_run_leaves_the_page_alone_and_says_so(checkout: Path) -> None:
    ended = run(checkout, is_quick=True)
    assert ended.stdout.count('"bench"') == 2
    assert "docs/benchmarks.md is left as it was" in ended.stdout
    assert page(checkout) == OLD_PAGE
