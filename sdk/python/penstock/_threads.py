"""Threads that no end of the interpreter waits for."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class DaemonPool:
    """A few threads that work off what `map` gives them.

    Those of `concurrent.futures` are waited for at exit with all that is left to do, however long it takes.
    """

    def __init__(self, thread_count: int, *, name: str) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=_work, args=(self._tasks,), name=f"{name}-{number}", daemon=True)
            for number in range(thread_count)
        ]
        for thread in self._threads:
            thread.start()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results in the order of the items; the first error is raised."""
        futures: list[Future[Result]] = [Future() for _ in items]
        for future, item in zip(futures, items, strict=True):
            self._tasks.put((future, lambda item=item: function(item)))  # type: ignore[misc]  # binds the loop's value
        if self._is_closed:
            self._drop_waiting()
        return [future.result() for future in futures]

    def close(self) -> None:
        """Let the threads end after what they are doing; nothing else is begun."""
        self._is_closed = True
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        with suppress(Empty):
            while True:
                if (task := self._tasks.get_nowait()) is not None:
                    task[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)


def _work(tasks: "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]") -> None:
    while (task := tasks.get()) is not None:
        future, call = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(call())
        except BaseException as error:
            # Raised again where the result is waited for.
            future.set_exception(error)
        del task, future, call
