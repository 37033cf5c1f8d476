"""create_app(settings): the HTTP server, wired."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from penstock_server.api.error_handlers import PROBLEM_RESPONSES, Problem, install
from penstock_server.api.middleware import BodyLimitMiddleware, RequestMiddleware, SecurityHeadersMiddleware
from penstock_server.api.page import PageApp, find_page_folder
from penstock_server.api.probes import Probes
from penstock_server.api.rate_limits import RateLimitHeadersMiddleware, RateLimits
from penstock_server.api.routes import include_routers
from penstock_server.api.security import Authenticator, SessionCookie
from penstock_server.composition import Services, build_services
from penstock_server.policy import PUBLIC_ACTIONS
from penstock_server.settings import Settings

_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API token: pst_..."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "penstock_session",
        "description": "The browser's session (the cookie's name ends in the port); unsafe methods need X-CSRF-Token",
    },
}


def create_app(settings: Settings, *, services: Services | None = None) -> FastAPI:
    """The server for these settings. Connects to nothing before the first request."""
    parts = services or build_services(settings)
    app = FastAPI(
        title="Penstock",
        version=version("penstock-server"),
        lifespan=_lifespan,
        # FastAPI's own documentation pages load from another host, which our content policy forbids.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = parts
    app.state.cookies = SessionCookie(settings.server)
    app.state.authenticator = Authenticator(parts.catalog, app.state.cookies)
    app.state.registry = CollectorRegistry()
    app.state.probes = Probes()
    app.state.rate_limits = RateLimits(settings.limits, is_behind_proxy=settings.server.public_url is not None)
    app.state.stopping = asyncio.Event()
    install(app)
    include_routers(app)
    app.router.default = PageApp(find_page_folder(settings.server.page_folder))
    # The last one added is the outermost.
    app.add_middleware(
        BodyLimitMiddleware,
        max_bytes=settings.server.max_body_bytes,
        progress_seconds=settings.server.body_timeout_seconds,
    )
    app.add_middleware(RateLimitHeadersMiddleware)
    app.add_middleware(RequestMiddleware, registry=app.state.registry)
    app.add_middleware(SecurityHeadersMiddleware, is_https=settings.server.url.startswith("https://"))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    try:
        yield
    finally:
        app.state.stopping.set()
        await run_in_threadpool(app.state.services.close)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = document.setdefault("components", {})
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = components.setdefault("schemas", {})
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        components["schemas"] = dict(sorted(schemas.items()))
        components["securitySchemes"] = _SECURITY_SCHEMES
        document["security"] = [{"bearer": []}, {"session": []}]
        for operations in document["paths"].values():
            for operation in operations.values():
                if operation["x-action"] in PUBLIC_ACTIONS:
                    operation["security"] = []
        app.openapi_schema = document
    return app.openapi_schema
