"""How much one caller may ask for: a bucket of requests each, which fills again with time.

The buckets are in memory, of one process: several API processes together allow that many times as much.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.contract.codes import ErrorCode
from penstock_server.errors import RateLimited
from penstock_server.policy import Actor
from penstock_server.settings import LimitSettings

_WINDOW_SECONDS = 60
# A caller whose bucket is thrown out has a full one again, so nobody gains much by making us forget the others.
_BUCKETS = 10_000
_STATE = "rate_allowance"


@dataclass(frozen=True)
class Allowance:
    """What is left in a bucket, in the words of the RateLimit header fields."""

    policy: str
    quota: int
    remaining: int
    reset_seconds: int
    wait_seconds: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Policy": f'"{self.policy}";q={self.quota};w={_WINDOW_SECONDS}',
            "RateLimit": f'"{self.policy}";r={self.remaining};t={self.reset_seconds}',
        }


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Buckets:
    """A token bucket a caller: `quota` at once, and as many a minute for ever."""

    def __init__(self, policy: str, quota: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._quota, self._clock = policy, quota, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str, count: int = 1) -> Allowance:
        """Takes from the caller's bucket what is there; `wait_seconds` is above 0 when it was too little."""
        with self._lock:
            bucket = self._filled(caller)
            is_enough = bucket.tokens >= max(count, 1)
            wait_seconds = 0 if is_enough else math.ceil((1 - bucket.tokens) * _WINDOW_SECONDS / self._quota)
            if is_enough:
                bucket.tokens -= count
            return Allowance(
                policy=self._policy,
                quota=self._quota,
                remaining=int(bucket.tokens),
                reset_seconds=math.ceil((self._quota - bucket.tokens) * _WINDOW_SECONDS / self._quota),
                wait_seconds=wait_seconds,
            )

    def _filled(self, caller: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(caller, _Bucket(self._quota, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)
        grown = (now - bucket.filled_at) * self._quota / _WINDOW_SECONDS
        bucket.tokens, bucket.filled_at = min(float(self._quota), bucket.tokens + grown), now
        return bucket


class RateLimits:
    """The buckets of one server process: of users and tokens, and of addresses that nobody has logged in from."""

    def __init__(self, settings: LimitSettings, *, is_behind_proxy: bool) -> None:
        self._actors = Buckets("actor", settings.requests_per_minute)
        self._strangers = Buckets("address", settings.refused_per_minute)
        self._failed_logins = Buckets("login", settings.failed_logins_per_minute)
        self._is_behind_proxy = is_behind_proxy

    def charge_actor(self, request: Request, actor: Actor) -> None:
        """Raises RateLimited when this session's user, or this token, has used up its requests."""
        caller = f"user {actor.user_id}" if actor.token_id is None else f"token {actor.token_id}"
        self._note(request, self._actors.take(caller), "you have made too many requests")

    def charge_stranger(self, request: Request) -> None:
        """The same for an address whose request was refused for want of a valid token or session."""
        self._note(request, self._strangers.take(self._address(request)), "too many requests without a valid login")

    def admit_login(self, request: Request) -> None:
        """Raises RateLimited when too many logins from this address have failed; costs nothing itself."""
        self._note(request, self._failed_logins.take(self._address(request), 0), "too many logins have failed")

    def charge_failed_login(self, request: Request) -> None:
        setattr(request.state, _STATE, self._failed_logins.take(self._address(request)))

    def _note(self, request: Request, allowance: Allowance, reason: str) -> None:
        setattr(request.state, _STATE, allowance)
        if allowance.wait_seconds:
            raise RateLimited(
                ErrorCode.REQUEST_RATE_LIMITED,
                f"{reason}: at most {allowance.quota} a minute; try again in {allowance.wait_seconds} s",
                context={"retry_after_seconds": allowance.wait_seconds},
            )

    def _address(self, request: Request) -> str:
        # What the proxy in front has put there itself is the last entry; those before it anybody can make up.
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        if self._is_behind_proxy and forwarded:
            return forwarded
        return request.client.host if request.client is not None else ""


class RateLimitHeadersMiddleware:
    """Tells every caller that was counted what is left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            allowance: Allowance | None = scope.get("state", {}).get(_STATE)
            if message["type"] == "http.response.start" and allowance is not None:
                MutableHeaders(scope=message).update(allowance.headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)
