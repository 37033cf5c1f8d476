"""Server-sent events: one open answer that tells a page what happens."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi.responses import StreamingResponse

from penstock_server.events import BusEvent

KEEP_ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
MEDIA_TYPE = "text/event-stream"


class EventStream:
    """Follows the bus for one caller until it leaves, loses its rights, or the server stops."""

    def __init__(
        self,
        events: AsyncIterator[BusEvent],
        *,
        is_visible: Callable[[BusEvent], bool],
        is_still_allowed: Callable[[], Awaitable[bool]],
        stopping: asyncio.Event,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._events = events
        self._is_visible = is_visible
        self._is_still_allowed = is_still_allowed
        self._stopping = stopping
        self._keep_alive_seconds = keep_alive_seconds

    def response(self) -> StreamingResponse:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.frames(), media_type=MEDIA_TYPE, headers=headers)

    async def frames(self) -> AsyncIterator[bytes]:
        events = aiter(self._events)
        pending = asyncio.ensure_future(_next(events))
        stop = asyncio.ensure_future(self._stopping.wait())
        checked_at = time.monotonic()
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n: connected\n\n".encode()
            while True:
                done, _ = await asyncio.wait(
                    {pending, stop}, timeout=self._keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stop in done:
                    return
                if time.monotonic() - checked_at >= self._keep_alive_seconds:
                    if not await self._is_still_allowed():
                        return
                    checked_at = time.monotonic()
                if not done:
                    yield b": keep-alive\n\n"
                    continue
                event = pending.result()
                if event is None:
                    return
                pending = asyncio.ensure_future(_next(events))
                if self._is_visible(event):
                    yield frame(event)
        finally:
            await _end(pending, stop, events)


def frame(event: BusEvent) -> bytes:
    data = json.dumps(event.payload, separators=(",", ":"), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode()


async def _next(events: AsyncIterator[BusEvent]) -> BusEvent | None:
    return await anext(events, None)


async def _end(pending: asyncio.Future[Any], stop: asyncio.Future[Any], events: AsyncIterator[BusEvent]) -> None:
    pending.cancel()
    stop.cancel()
    await asyncio.gather(pending, stop, return_exceptions=True)
    close = getattr(events, "aclose", None)
    if close is not None:
        with contextlib.suppress(RuntimeError):
            await close()
