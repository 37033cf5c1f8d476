"""HTTP to the server: retries, and every failure as an error of Penstock."""

import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx

from penstock._config import ClientConfig
from penstock._errors import APIError, ConfigError, ConnectError, Timeout, TransportError, api_error_class
from penstock._version import __version__
from penstock.contract.codes import ErrorCode

API_PREFIX = "/api/v1"
MAX_ATTEMPTS = 4
PAGE_LIMIT = 200

_RETRIED_STATUSES = (429, 502, 503, 504)
_SAFE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
_log = logging.getLogger("penstock.transport")


class Transport:
    """Sends requests to one server; safe to use from several threads."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        http_transport: httpx.BaseTransport | None = None,
        timeout_seconds: float = 30.0,
        max_attempts: int = MAX_ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._sleep = sleep
        self._max_attempts = max_attempts
        self._http_transport = http_transport
        self._timeout_seconds = timeout_seconds
        if config.token and not config.is_loopback and config.base_url.startswith("http://"):
            _log.warning("the token travels unencrypted to %s: use https", config.base_url)
        self._connections = self._connected()
        self._inherited: list[httpx.Client] = []

    def __repr__(self) -> str:
        return f"Transport({self.config.base_url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a transport holds a connection and a token and is not pickled; make a new client instead")

    def sibling(self, *, timeout_seconds: float) -> "Transport":
        """A transport to the same server with connections and patience of its own, and without retries."""
        return Transport(
            self.config, http_transport=self._http_transport, timeout_seconds=timeout_seconds, max_attempts=1
        )

    def close(self) -> None:
        """Close all connections; in a forked child those of the parent stay as they are."""
        pid, http = self._connections
        if pid == os.getpid():
            http.close()

    def _connected(self) -> tuple[int, httpx.Client]:
        """New connections, and the process that they belong to."""
        http = httpx.Client(
            base_url=self.config.base_url,
            headers={"User-Agent": f"penstock-sdk/{__version__}", "Accept": "application/json"},
            timeout=httpx.Timeout(self._timeout_seconds, connect=min(5.0, self._timeout_seconds)),
            transport=self._http_transport,
            # A proxy of the environment knows nothing of this machine's own ports.
            trust_env=not self.config.is_loopback,
        )
        return os.getpid(), http

    @property
    def _http(self) -> httpx.Client:
        pid, http = self._connections
        if pid != os.getpid():
            # The sockets are the parent's too: two processes on one of them mix up their answers. Kept, because
            # closing one that is encrypted would end it for the parent.
            self._inherited.append(http)
            self._connections = self._connected()
            _, http = self._connections
        return http

    def get(self, path: str, **params: object) -> Any:
        """GET a JSON document; parameters that are None are left out."""
        return self.request("GET", path, params=params)

    def post(self, path: str, body: object | None = None, *, idempotency_key: str | None = None) -> Any:
        """POST a JSON document; with an idempotency key it is retried like a GET."""
        return self.request("POST", path, body=body, idempotency_key=idempotency_key)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        body: object | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """Send a request to `/api/v1<path>` and return the decoded JSON (None when the answer is empty)."""
        request = self._built(method, API_PREFIX + path, params, body, idempotency_key)
        may_repeat = method in _SAFE_METHODS or idempotency_key is not None
        with self._answered(request, may_repeat=may_repeat) as response:
            return _decoded(response)

    def download(self, path: str, into: BinaryIO) -> None:
        """Write the body of GET `path` (absolute path, or one below the API) into a file; begins anew on retry."""
        # An address from the server is followed on this server only: the token goes nowhere else.
        if path.startswith(self.config.base_url + "/"):
            path = path.removeprefix(self.config.base_url)
        if not path.startswith("/"):
            raise TransportError(f"the server names a part at {path!r}, which is not one of its own addresses")
        target = path if path.startswith(API_PREFIX) else API_PREFIX + path
        request = self._built("GET", target, None, None, None)
        for attempt in range(self._max_attempts):
            try:
                with self._answered(request, may_repeat=True) as response:
                    into.seek(0)
                    into.truncate()
                    for block in response.iter_bytes(1 << 20):
                        into.write(block)
                    return
            except httpx.HTTPError as error:
                if attempt + 1 == self._max_attempts:
                    raise mapped(error, self.config.base_url) from error
                self._pause(attempt)

    def _built(
        self, method: str, path: str, params: Mapping[str, object] | None, body: object | None, key: str | None
    ) -> httpx.Request:
        headers = {}
        if self.config.token:
            headers["Authorization"] = f"Bearer {self.config.token}"
        if key is not None:
            headers["Idempotency-Key"] = key
        query = {name: str(value) for name, value in (params or {}).items() if value is not None}
        try:
            return self._http.build_request(method, path, params=query, json=body, headers=headers)
        except httpx.InvalidURL:
            raise ConfigError(f"{self.config.base_url!r} is no address of a server") from None

    @contextmanager
    def _answered(self, request: httpx.Request, *, may_repeat: bool) -> Iterator[httpx.Response]:
        response = self._sent(request, may_repeat=may_repeat)
        try:
            if response.status_code >= 300:
                raise self._refusal(response)
            yield response
        finally:
            response.close()

    def _sent(self, request: httpx.Request, *, may_repeat: bool) -> httpx.Response:
        for attempt in range(self._max_attempts):
            is_last = attempt + 1 == self._max_attempts
            try:
                response = self._http.send(request, stream=True)
            except httpx.HTTPError as error:
                # A request that never left this machine can be repeated whatever it asks for.
                if is_last or not (may_repeat or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)):
                    raise mapped(error, self.config.base_url) from error
                self._pause(attempt)
                continue
            if is_last or not may_repeat or response.status_code not in _RETRIED_STATUSES:
                return response
            response.close()
            self._pause(attempt, retry_after=response.headers.get("Retry-After"))
        raise TransportError("no attempt was allowed")

    def _pause(self, attempt: int, *, retry_after: str | None = None) -> None:
        seconds = 0.2 * 2.0**attempt * random.uniform(0.5, 1.5)  # noqa: S311 (jitter)
        if retry_after and retry_after.isdigit():
            seconds = min(float(retry_after), 30.0)
        self._sleep(seconds)

    def _refusal(self, response: httpx.Response) -> APIError | TransportError:
        try:
            response.read()
            document = json.loads(response.content)
        except (ValueError, httpx.HTTPError):
            document = None
        if not isinstance(document, dict) or not isinstance(document.get("code"), str):
            return _foreign_answer(response, self.config.base_url)
        detail = str(document.get("detail") or document.get("title") or "no detail")
        if response.status_code == 401 and not self.config.token:
            detail += "; no token was given: set PENSTOCK_TOKEN or pass token="
        context = document.get("context")
        errors = document.get("errors") or ()
        return api_error_class(response.status_code)(
            detail,
            code=document["code"],
            status=response.status_code,
            request_id=document.get("request_id"),
            context=context if isinstance(context, dict) else None,
            errors=[(str(item.get("pointer", "")), str(item.get("message", ""))) for item in errors],
        )


def pages(transport: Transport, path: str, **params: object) -> Iterator[Any]:
    """All items of a listing, page after page."""
    cursor: str | None = None
    while True:
        page = transport.get(path, limit=PAGE_LIMIT, cursor=cursor, **params)
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise TransportError(f"{transport.config.base_url} did not answer with a listing: is it a Penstock server?")
        yield from page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return


def mapped(error: httpx.HTTPError, base_url: str) -> TransportError:
    """The error of Penstock for one of httpx."""
    if isinstance(error, httpx.TimeoutException):
        return Timeout(f"{base_url} did not answer in time; is the server overloaded or behind a firewall?")
    if isinstance(error, httpx.ConnectError):
        return ConnectError(f"no server can be reached at {base_url}: {error}; is it running, is the address right?")
    if isinstance(error, httpx.TransportError):
        return ConnectError(f"the connection to {base_url} broke: {error or type(error).__name__}")
    return TransportError(f"talking to {base_url} failed: {error or type(error).__name__}")


def _decoded(response: httpx.Response) -> Any:
    try:
        content = response.read()
    except httpx.HTTPError as error:
        raise mapped(error, str(response.request.url.copy_with(query=None))) from error
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        raise TransportError(
            f"{response.request.url.copy_with(query=None)} answered with something that is not JSON: "
            "is this address a Penstock server?"
        ) from None


def _foreign_answer(response: httpx.Response, base_url: str) -> APIError | TransportError:
    status = response.status_code
    detail = f"{base_url} answered with status {status} and no error of Penstock: a proxy, or another program?"
    if status < 400:
        return TransportError(detail)
    code = ErrorCode.SERVER_INTERNAL if status >= 500 else ErrorCode.REQUEST_INVALID
    return api_error_class(status)(detail, code=code, status=status, request_id=response.headers.get("X-Request-ID"))
