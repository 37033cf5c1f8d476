"""Runs every benchmark and rewrites the tables of docs/benchmarks.md between their markers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"


class Figure(TypedDict):
    name: str
    value: float
    unit: str
    reach: str | None
    ok: bool
    # Smallest and largest of so many repetitions, of which `value` is the median.
    spread: str | None


def run_bench(script: Path) -> list[Figure]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    print(ended.stdout, end="", flush=True)
    figures: list[Figure] = json.loads(ended.stdout.splitlines()[-1])["figures"]
    return figures


def table(figures: list[Figure]) -> str:
    lines = ["| figure | measured | spread | to reach | reached |", "|---|---|---|---|---|"]
    for figure in figures:
        reached = "-" if figure["reach"] is None else ("yes" if figure["ok"] else "**no**")
        measured = f"{figure['value']:.3g} {figure['unit']}"
        cells = [figure["name"], measured, figure["spread"] or "-", figure["reach"] or "-", reached]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rewrite(name: str, figures: list[Figure]) -> None:
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    block = f"{begin}\n{table(figures)}\n{end}"
    text = PAGE.read_text()
    if begin in text:
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, text, flags=re.DOTALL)
    else:
        text = f"{text.rstrip()}\n\n## {name}\n\n{block}\n"
    PAGE.write_text(text)


if __name__ == "__main__":
    for script in sorted((ROOT / "tests" / "bench").glob("bench_*.py")):
        rewrite(script.stem.removeprefix("bench_"), run_bench(script))
