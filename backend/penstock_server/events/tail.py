"""One reader of the stream a process, however many pages are open on it."""

import asyncio
import contextlib
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any
from uuid import UUID

import structlog

from penstock.contract.codes import ErrorCode
from penstock_server.errors import DependencyUnavailable
from penstock_server.events.port import BusEvent, Topic

POLL_SECONDS = 0.25
_TROUBLE_SECONDS = 2.0
_READ_EVENTS = 500
# A page that is this far behind is cut off; it comes back with Last-Event-ID.
_QUEUE_EVENTS = 2000

_log = structlog.get_logger(__name__)
_Queue = asyncio.Queue[BusEvent | None]


class TailingBus(ABC):
    """Publishes into a kept stream and follows it for its subscribers; subclasses know the stream."""

    def __init__(self) -> None:
        # Weak: a subscription that nobody began to read must not stay here for ever.
        self._queues: weakref.WeakSet[_Queue] = weakref.WeakSet()
        self._tail: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @abstractmethod
    def _append(self, topic: Topic, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _newest_id(self) -> str: ...

    @abstractmethod
    def _read_after(self, event_id: str, limit: int) -> list[BusEvent]: ...

    @abstractmethod
    def _place(self, event_id: str) -> tuple[int, ...]:
        """Order of ids; ValueError when this stream never gave such an id."""

    @abstractmethod
    def health(self) -> str | None: ...

    def publish(self, topic: Topic, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None:
        try:
            self._append(topic, kind, project_id, payload)
        except Exception as error:
            # The catalog has the truth; a page that missed this sees it at its next read.
            _log.warning("event.lost", topic=topic, kind=kind, reason=type(error).__name__)

    async def subscribe(self, topics: Collection[Topic], after_id: str | None = None) -> AsyncIterator[BusEvent]:
        queue: _Queue = asyncio.Queue(maxsize=_QUEUE_EVENTS)
        try:
            await self._ensure_tail(queue)
        except Exception as error:
            _log.warning("events.unreadable", reason=type(error).__name__)
            detail = "the stream of events cannot be read now; try again in a moment"
            raise DependencyUnavailable(ErrorCode.QUEUE_UNAVAILABLE, detail) from error
        return self._events(queue, topics, after_id)

    async def _events(self, queue: _Queue, topics: Collection[Topic], after_id: str | None) -> AsyncIterator[BusEvent]:
        try:
            last = self._known_place(after_id)
            if last is not None and after_id is not None:
                while backlog := await asyncio.to_thread(self._read_after, after_id, _READ_EVENTS):
                    for event in backlog:
                        if event.topic in topics:
                            yield event
                    after_id = backlog[-1].id
                    last = self._place(after_id)
            while (found := await queue.get()) is not None:
                if found.topic in topics and (last is None or self._place(found.id) > last):
                    yield found
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def _known_place(self, after_id: str | None) -> tuple[int, ...] | None:
        if after_id is None:
            return None
        try:
            return self._place(after_id)
        except ValueError:
            return None

    async def _ensure_tail(self, queue: _Queue) -> None:
        loop = asyncio.get_running_loop()
        if self._tail is None or self._tail.done() or self._loop is not loop:
            self._loop = loop
            self._queues.add(queue)
            newest = await asyncio.to_thread(self._newest_id)
            # Another subscriber may have started the tail while this one asked for the newest id.
            if self._tail is None or self._tail.done() or self._tail.get_loop() is not loop:
                self._tail = loop.create_task(self._follow(newest))
        else:
            self._queues.add(queue)
        if self._is_closed:
            self._end_all()

    async def _follow(self, position: str) -> None:
        while self._queues and not self._is_closed:
            try:
                events = await asyncio.to_thread(self._read_after, position, _READ_EVENTS)
            except Exception as error:
                _log.warning("events.unreadable", reason=type(error).__name__)
                await asyncio.sleep(_TROUBLE_SECONDS)
                continue
            for event in events:
                self._hand_out(event)
                position = event.id
            if len(events) < _READ_EVENTS:
                await asyncio.sleep(POLL_SECONDS)

    def _hand_out(self, event: BusEvent) -> None:
        for queue in tuple(self._queues):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._queues.discard(queue)
                _end(queue)

    def _end_all(self) -> None:
        for queue in tuple(self._queues):
            _end(queue)


def _end(queue: _Queue) -> None:
    with contextlib.suppress(asyncio.QueueEmpty):
        if queue.full():
            queue.get_nowait()
    queue.put_nowait(None)
