"""What a benchmark prints: a table for people and, as the last line, one JSON object for `make bench`."""

import json
import operator
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BOUND = re.compile(r"(<=|>=|<|>) *([0-9.]+)$")
_RANGE = re.compile(r"([0-9.]+) to ([0-9.]+)$")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    reach: str | None
    spread: str | None = None

    @property
    def is_reached(self) -> bool:
        """A figure without a bound is only reported."""
        if self.reach is None:
            return True
        if bound := _BOUND.match(self.reach):
            return _COMPARE[bound[1]](self.value, float(bound[2]))
        if ends := _RANGE.match(self.reach):
            return float(ends[1]) <= self.value <= float(ends[2])
        raise ValueError(f"{self.name}: a reach looks like '>= 0.97' or '0.5 to 0.7', not {self.reach!r}")


class BenchReport:
    """Collects figures; `print` ends the benchmark. A figure that is not reached is reported, never an error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures: list[Figure] = []

    def add(self, name: str, value: float | Sequence[float], *, unit: str, reach: str | None = None) -> "BenchReport":
        """`value` may be several repetitions: the figure is their median, the report says how far they spread."""
        if isinstance(value, int | float):
            figure = Figure(name, float(value), unit, reach)
        else:
            spread = f"{_short(min(value))}-{_short(max(value))} of {len(value)}"
            figure = Figure(name, statistics.median(value), unit, reach, spread)
        self.figures.append(figure)
        return self

    def print(self) -> None:
        rows = [("figure", "value", "unit", "reach", "ok", "spread")]
        for figure in self.figures:
            verdict = "" if figure.reach is None else "yes" if figure.is_reached else "NO"
            rows.append(
                (figure.name, _short(figure.value), figure.unit, figure.reach or "", verdict, figure.spread or "")
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        print(f"\n{self.name}")
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        print(json.dumps(self.as_json()), flush=True)

    def as_json(self) -> dict[str, object]:
        return {
            "bench": self.name,
            "figures": [
                {
                    "name": figure.name,
                    "value": round(figure.value, 6),
                    "unit": figure.unit,
                    "reach": figure.reach,
                    "ok": figure.is_reached,
                    "spread": figure.spread,
                }
                for figure in self.figures
            ],
        }


def _short(value: float) -> str:
    return f"{value:.4g}"
