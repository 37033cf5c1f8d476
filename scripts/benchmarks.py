"""Runs the benchmarks that are named, or all, and rewrites their tables in docs/benchmarks.md between the markers."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
SCRIPTS = ROOT / "tests" / "bench"
# As in tests/harness/bench_scale.py, which the benchmarks themselves read.
IS_QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"


class Figure(TypedDict):
    name: str
    value: float
    unit: str
    reach: str | None
    ok: bool
    # Smallest and largest of so many repetitions, of which `value` is the median.
    spread: str | None


def main(names: Sequence[str]) -> None:
    for name, script in chosen(names).items():
        figures = run_bench(script)
        if not IS_QUICK:
            PAGE.write_text(with_table(PAGE.read_text(), name, figures))
    if IS_QUICK:
        print(f"PENSTOCK_BENCH_QUICK=1: such figures mean nothing, {PAGE.relative_to(ROOT)} is left as it was")


def chosen(names: Sequence[str]) -> dict[str, Path]:
    """The scripts of these benchmarks, or of all when none is named."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(SCRIPTS.glob("bench_*.py"))}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"there is no benchmark {', '.join(unknown)}; there are: {' '.join(known)}")
    return {name: known[name] for name in names or known}


def run_bench(script: Path) -> list[Figure]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    print(ended.stdout, end="", flush=True)
    figures: list[Figure] = json.loads(ended.stdout.splitlines()[-1])["figures"]
    return figures


def with_table(page: str, name: str, figures: list[Figure]) -> str:
    """The page with this benchmark's table replaced, or added at its end."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    block = f"{begin}\n{table(figures)}\n{end}"
    if begin in page:
        return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, page, flags=re.DOTALL)
    return f"{page.rstrip()}\n\n## {name}\n\n{block}\n"


def table(figures: list[Figure]) -> str:
    lines = ["| figure | measured | spread | to reach | reached |", "|---|---|---|---|---|"]
    for figure in figures:
        reached = "-" if figure["reach"] is None else ("yes" if figure["ok"] else "**no**")
        measured = f"{figure['value']:.3g} {figure['unit']}"
        cells = [figure["name"], measured, figure["spread"] or "-", figure["reach"] or "-", reached]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
