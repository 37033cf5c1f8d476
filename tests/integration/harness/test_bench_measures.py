"""What the benchmarks compute from what they saw, on made-up observations."""

import itertools
import random

import pytest
from bench.bench_edge import gaps
from bench.bench_lanes import a_quarter
from bench.bench_ramp import SECONDS, Look, full_after

from harness.bench_dataset import Arrival
from harness.bench_link import rate_of


def test_rate_is_what_came_after_the_first_arrival() -> None:
    seen = [Arrival(10.0, 0, 0, 999), Arrival(10.5, 0, 1, 100), Arrival(12.0, 0, 2, 200)]
    assert rate_of(seen) == pytest.approx(150)
    assert gaps(seen) == pytest.approx([0.5, 1.5])


def looks_at(rates: list[int]) -> list[Look]:
    """A hundred looks a second, with so many bytes between one and the next."""
    passed = itertools.accumulate(rates)
    return [Look(index / 100, 0, 0, relay_bytes, 0) for index, relay_bytes in enumerate(passed)]


def test_link_is_full_when_it_has_been_for_a_quarter_of_a_second_and_stays_so() -> None:
    looks = looks_at([100] * 100 + [800] * 300)
    assert full_after(looks, 79_999) == pytest.approx(1.24, abs=0.02)
    assert full_after(looks, 80_001) == SECONDS


def test_a_burst_does_not_fill_the_link() -> None:
    assert full_after(looks_at([100] * 100 + [1000] * 60 + [500] * 100 + [1000] * 300), 80_000) > 2.5
    # Nor does what nobody has seen lasting.
    assert full_after(looks_at([100] * 100 + [800] * 150), 79_999) == SECONDS


@pytest.mark.parametrize(("lanes", "slow"), [(2, 1), (4, 1), (16, 4), (29, 7), (31, 8), (32, 8)])
def test_exactly_a_quarter_of_the_lanes_is_slow(lanes: int, slow: int) -> None:
    carrying = range(3, 3 + 2 * lanes, 2)
    chosen = a_quarter(carrying, lanes, random.Random(1))
    assert len(chosen) == slow
    assert chosen <= set(carrying)


def test_the_slow_quarter_is_drawn_anew_every_time() -> None:
    chooser = random.Random(1)
    assert len({frozenset(a_quarter(range(32), 32, chooser)) for _ in range(5)}) == 5
