"""The list of routers, and the rule that no route is open by mistake."""

from collections.abc import Iterable, Iterator

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from penstock_server.api import health
from penstock_server.api.deps import authorize
from penstock_server.api.v1 import (
    datasets,
    events,
    ingests,
    jobs,
    loaders,
    projects,
    samples,
    session,
    splits,
    tokens,
    versions,
)
from penstock_server.policy import PUBLIC_ACTIONS, Action

API_PATH = "/api/v1"


class RouteWithoutDoor(RuntimeError):
    """A route that names no action, or does not ask for the one it names."""


def include_routers(app: FastAPI) -> None:
    """Adds every route, each behind its door."""
    add_router(app, health.router)
    for module in (session, tokens, projects, datasets, versions, samples, splits, ingests, jobs, loaders, events):
        add_router(app, module.router, prefix=API_PATH)


def add_router(app: FastAPI, router: APIRouter, *, prefix: str = "") -> None:
    check_doors(router.routes)
    app.include_router(router, prefix=prefix)


def check_doors(routes: Iterable[BaseRoute]) -> None:
    """Deny by default: stops the start when a route could be reached without its action being asked for."""
    for route in routes:
        if not isinstance(route, APIRoute):
            raise RouteWithoutDoor(f"{route} is not a route of the API; only those can name their action")
        named = (route.openapi_extra or {}).get("x-action")
        place = f"{sorted(route.methods or ())} {route.path}"
        if named not in set(Action):
            raise RouteWithoutDoor(f"{place} names no action: openapi_extra=action(Action.X) is missing")
        name = Action(named)
        if name not in PUBLIC_ACTIONS and authorize(name) not in set(_calls(route.dependant)):
            raise RouteWithoutDoor(f"{place} says it is '{name}' but has no Depends(authorize({name!r}))")


def _calls(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)
