"""The pipe over which a child process gives its signs of life."""

import os
import select
from types import TracebackType
from typing import Literal, Self

from penstock_server.child import LIFELINE_OPTION

_BYTES_A_LOOK = 4096

Heard = Literal["sign", "nothing", "end"]


class Lifeline:
    """The parent listens at one end; the other belongs to the child, so that its end is heard too."""

    def __init__(self) -> None:
        self._listening, self._speaking = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._listening, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hand_over()
        os.close(self._listening)

    @property
    def child_handle(self) -> int:
        return self._speaking

    @property
    def child_arguments(self) -> list[str]:
        return [LIFELINE_OPTION, str(self._speaking)]

    def hand_over(self) -> None:
        """The child has its end: ours of it would keep the pipe open after the child has ended."""
        if self._speaking >= 0:
            os.close(self._speaking)
            self._speaking = -1

    def listen(self, seconds: float) -> Heard:
        if not self._poll.poll(seconds * 1000):
            return "nothing"
        return "sign" if os.read(self._listening, _BYTES_A_LOOK) else "end"
