"""What endpoints ask for: the actor, a unit of work, the process's services, idempotency."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.concurrency import run_in_threadpool

from penstock_server.api.rate_limits import RateLimits
from penstock_server.api.security import Authenticator
from penstock_server.composition import Services
from penstock_server.db import UnitOfWork
from penstock_server.domain.audit.service import AuditTrail
from penstock_server.domain.idempotency import Idempotency
from penstock_server.errors import Unauthenticated
from penstock_server.policy import AUDITED_ACTIONS, Action, Actor, require

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def action(name: Action) -> dict[str, Any]:
    """For `openapi_extra`: the action a route is; a route without one stops create_app."""
    return {"x-action": name.value}


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


ServicesDep = Annotated[Services, Depends(services)]


def rate_limits(request: Request) -> RateLimits:
    found: RateLimits = request.app.state.rate_limits
    return found


RateLimitsDep = Annotated[RateLimits, Depends(rate_limits)]


@cache
def authorize(name: Action) -> Callable[[Request], Awaitable[Actor]]:
    """A dependency that gives the actor when it may do `name`, and answers 401, 403 or 429 when not."""

    async def actor_of(request: Request) -> Actor:
        authenticator: Authenticator = request.app.state.authenticator
        try:
            actor = await authenticator.actor_of(request)
        except Unauthenticated:
            rate_limits(request).charge_stranger(request)
            raise
        rate_limits(request).charge_actor(request, actor)
        require(actor, name)
        request.state.actor, request.state.action = actor, name
        return actor

    return actor_of


async def unit_of_work(request: Request) -> AsyncIterator[UnitOfWork]:
    """Opened lazily and committed in a thread before the answer is sent; reading requests get a reading one."""
    catalog = services(request).catalog
    is_safe = request.method in SAFE_METHODS
    unit = catalog.unit(is_read_only=is_safe)
    try:
        yield unit
    except BaseException:
        await run_in_threadpool(unit.rollback)
        raise
    if is_safe and unit.is_idle:
        return
    await run_in_threadpool(_finish, request, unit)


UnitDep = Annotated[UnitOfWork, Depends(unit_of_work, scope="function")]


def idempotent(name: Action) -> Callable[..., Awaitable[Idempotency]]:
    """A dependency for `Idempotency-Key`: `once: Annotated[Idempotency, Depends(idempotent(Action.X))]`.

    The endpoint then returns `once.run(Model, lambda: service.create(...))`; a repeated key gives the first answer.
    """

    async def once(
        request: Request,
        unit: UnitDep,
        actor: Annotated[Actor, Depends(authorize(name))],
        key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)] = None,
    ) -> Idempotency:
        body = await request.body() if key is not None else b""
        return Idempotency(unit, actor.user_id, key, operation=f"{request.method} {request.url.path}", body=body)

    return once


def _finish(request: Request, unit: UnitOfWork) -> None:
    actor: Actor | None = getattr(request.state, "actor", None)
    name: Action | None = getattr(request.state, "action", None)
    with unit:
        if not unit.is_read_only and actor is not None and name in AUDITED_ACTIONS:
            AuditTrail(unit).record(actor, name, request.url.path, request_id=request.state.request_id)
