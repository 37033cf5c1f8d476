"""uvicorn with what it lacks: deadlines for request heads, and streams that end when it stops."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock_server.settings import ServerSettings

# Requests under way get this long after a signal; the whole stop must fit into five seconds.
GRACE_SECONDS = 2
_KEEP_ALIVE_SECONDS = 30


class DeadlineProtocol(HttpToolsProtocol):
    """Closes a connection whose request head is not complete in time; uvicorn itself waits for ever."""

    header_seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class HttpServer(uvicorn.Server):
    """One server on a socket that is already bound."""

    def __init__(
        self,
        app: FastAPI,
        settings: ServerSettings,
        *,
        on_started: Callable[[], None],
        on_stopping: Callable[[], None],
    ) -> None:
        protocol = type("Protocol", (DeadlineProtocol,), {"header_seconds": settings.header_timeout_seconds})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._app = app
        self._on_started = on_started
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Before uvicorn waits for its connections: an open stream would keep it waiting.
        self._app.state.stopping.set()
        self._on_stopping()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        # uvicorn would raise the signal again at its end; our command ends in order instead.
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
