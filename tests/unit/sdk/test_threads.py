"""The threads that decode."""

import threading
from concurrent.futures import CancelledError

import pytest

from penstock._threads import DaemonPool


def test_results_come_in_the_order_of_the_items_and_errors_are_raised() -> None:
    pool = DaemonPool(3, name="test")
    assert pool.map(lambda item: item * 2, range(100)) == list(range(0, 200, 2))
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda item: 1 // item, [1, 0, 1])
    assert pool.map(str, [1]) == ["1"]
    pool.close()


def test_closing_begins_nothing_more_and_lets_nobody_wait_for_it() -> None:
    pool = DaemonPool(1, name="test")
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work(item: int) -> None:
        begun.set()
        assert may_end.wait(10)
        done.append(item)

    def use() -> None:
        with pytest.raises(CancelledError):
            pool.map(work, [1, 2, 3])

    user = threading.Thread(target=use)
    user.start()
    assert begun.wait(10)
    pool.close()
    may_end.set()
    user.join(10)
    assert not user.is_alive()
    assert done == [1]
    with pytest.raises(CancelledError):
        DaemonPool.map(pool, work, [4])
