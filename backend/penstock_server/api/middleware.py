"""What happens to every request, as plain ASGI: an id, a log line, limits, headers."""

import asyncio
import re
import time
import uuid

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.contract.codes import ErrorCode
from penstock_server.api.error_handlers import problem, unexpected

REQUEST_ID_HEADER = "X-Request-ID"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_API_PATH = "/api/v1"
_QUIET_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})

_log = structlog.get_logger("penstock_server.access")


class RequestMiddleware:
    """Request id, access log (path only: filters in the query name patients), metrics, and the last net for bugs."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._requests = Counter("penstock_http_requests_total", "Requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "penstock_http_request_seconds", "Time until the answer was sent", ("method", "route"), registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started_at, status = time.perf_counter(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_noted)
            except Exception:
                _log.exception("request.failed", method=scope["method"], path=scope["path"])
                if status == 0:
                    await unexpected(request_id)(scope, receive, send_noted)
            finally:
                self._note(scope, status, time.perf_counter() - started_at)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"]
        route = _route_label(scope)
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
        write = _log.debug if scope["path"] in _QUIET_PATHS else _log.info
        write("request", method=method, path=scope["path"], status=status, ms=round(seconds * 1000, 1))


class SecurityHeadersMiddleware:
    """Headers for every answer; the page brings its own content security policy."""

    def __init__(self, app: ASGIApp, *, is_https: bool) -> None:
        self._app = app
        self._headers = {
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
            # Bytes of users are answers too: opened on their own they may run nothing.
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
            "Cache-Control": "no-store",
        }
        if is_https:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class BodyLimitMiddleware:
    """Bodies have a size and must make progress; uvicorn sets neither limit."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, progress_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._progress_seconds = progress_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            answer = problem(
                scope["state"]["request_id"],
                413,
                ErrorCode.REQUEST_TOO_LARGE,
                self._too_large(),
                headers={"Connection": "close"},
            )
            await answer(scope, receive, send)
            return
        await self._app(scope, self._counting(receive), send)

    def _counting(self, receive: Receive) -> Receive:
        received_bytes, is_complete = 0, False

        async def receive_counted() -> Message:
            nonlocal received_bytes, is_complete
            if is_complete:
                # What comes now is the disconnect; a stream waits for it as long as it lasts.
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self._progress_seconds)
            except TimeoutError:
                is_complete = True
                detail = f"the body made no progress for {self._progress_seconds:g} s"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            if message["type"] == "http.request":
                received_bytes += len(message.get("body", b""))
                is_complete = not message.get("more_body", False)
                if received_bytes > self._max_bytes:
                    is_complete = True
                    raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return receive_counted

    def _too_large(self) -> str:
        return f"the body is larger than {self._max_bytes} bytes, the limit of this server"


def _route_label(scope: Scope) -> str:
    """The route's template, never the path itself: every path would be a time series of its own."""
    template = getattr(scope.get("route"), "path", None)
    if template is None:
        return "none" if scope["path"].startswith("/api/") else "page"
    # An included router knows its own part of the path only.
    return f"{_API_PATH}{template}" if scope["path"].startswith(_API_PATH + "/") else str(template)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
