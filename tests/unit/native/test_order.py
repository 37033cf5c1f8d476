"""The order of an epoch, seen from Python."""

import re
from pathlib import Path

import pytest

from penstock._native import Order

FORMATS = Path(__file__).parents[3] / "docs" / "formats.md"


def test_order_gives_the_published_vectors() -> None:
    assert Order.ALGORITHM == "penstock-feistel-1"
    small = Order(10, seed=7, epoch=3)
    assert [small.at(i) for i in range(10)] == [2, 6, 3, 0, 7, 8, 5, 9, 1, 4]
    large = Order(1_000_000, seed=7, epoch=3)
    assert [large.at(i) for i in range(5)] == [916_803, 883_708, 756_119, 948_162, 778_823]
    huge = Order(2**40, seed=2**64 - 1, epoch=0)
    assert [huge.at(i) for i in range(3)] == [299_092_248_637, 998_958_648_055, 110_728_314_169]


def test_order_gives_the_vectors_of_the_document() -> None:
    section = FORMATS.read_text().split("## 6. Order of an epoch, `penstock-feistel-1`")[1]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d, ]+) \| ([\d, ]+) \|$", section, re.MULTILINE)
    assert [int(n) for n, *_ in rows] == [10, 65_536, 65_537, 1_000_000, 2**40]
    for n, seed, epoch, forward, backward in rows:
        order = Order(int(n), seed=int(seed), epoch=int(epoch))
        assert [order.at(i) for i in range(5)] == [int(p) for p in forward.split(", ")]
        assert [order.inverse(p) for p in range(5)] == [int(i) for i in backward.split(", ")]


@pytest.mark.parametrize("n", [1, 2, 65_536, 65_537])
def test_order_is_a_permutation_and_inverse_undoes_it(n: int) -> None:
    order = Order(n, seed=0, epoch=0)
    positions = [order.at(i) for i in range(n)]
    assert sorted(positions) == list(range(n))
    assert all(order.inverse(p) == i for i, p in enumerate(positions[:500]))


def test_order_without_shuffle_is_the_identity() -> None:
    order = Order(9, seed=3, epoch=4, shuffle=False)
    assert [order.at(i) for i in range(len(order))] == list(range(9))


def test_order_refuses_what_is_outside() -> None:
    with pytest.raises(IndexError, match="place 5 is outside an order of 5"):
        Order(5, seed=0, epoch=0).at(5)
    with pytest.raises(ValueError, match="seed is -1"):
        Order(5, seed=-1, epoch=0)
    with pytest.raises(TypeError, match="epoch has to be a whole number"):
        Order(5, seed=0, epoch="first")  # type: ignore[arg-type]  # misuse on purpose
