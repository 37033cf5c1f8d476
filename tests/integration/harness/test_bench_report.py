import json

import pytest

from harness.bench_report import BenchReport


def test_last_line_is_one_json_object_with_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchReport("distance")
    report.add("rate at 150 ms", [0.99, 0.95, 0.97], unit="x", reach=">= 0.97")
    report.add("first sample", 4, unit="round trips", reach="<= 3")
    report.add("client CPU", 0.5, unit="core-s/GB")
    report.print()
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == {
        "bench": "distance",
        "figures": [
            {"name": "rate at 150 ms", "value": 0.97, "unit": "x", "reach": ">= 0.97", "ok": True,
             "spread": "0.95-0.99 of 3"},
            {"name": "first sample", "value": 4.0, "unit": "round trips", "reach": "<= 3", "ok": False,
             "spread": None},
            {"name": "client CPU", "value": 0.5, "unit": "core-s/GB", "reach": None, "ok": True, "spread": None},
        ],
    }  # fmt: skip
    assert any("0.95-0.99 of 3" in line for line in lines[:-1])


@pytest.mark.parametrize(("value", "is_reached"), [(0.49, False), (0.5, True), (0.7, True), (0.71, False)])
def test_reach_may_be_a_range_with_both_ends_in_it(value: float, is_reached: bool) -> None:
    report = BenchReport("distance").add("link / unshaped rate", value, unit="x", reach="0.5 to 0.7")
    assert report.figures[0].is_reached is is_reached


def test_reach_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="client CPU: a reach looks like"):
        BenchReport("cpu").add("client CPU", 1.0, unit="s", reach="about 1").print()
