"""Heavy queries wait for each other and for nobody else."""

import threading
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI

from penstock_server.api.deps import action, authorize
from penstock_server.api.querying import HEAVY_QUERIES, QueryingDep
from penstock_server.api.routes import add_router
from penstock_server.policy import Action, Actor
from penstock_server.settings import Settings

from .conftest import LiveServer


def test_heavy_queries_leave_the_threads_to_the_others(
    start_server: Callable[..., LiveServer], settings: Settings
) -> None:
    lock, running, most = threading.Lock(), 0, 0
    release = threading.Event()

    def heavy_route(app: FastAPI) -> None:
        router = APIRouter()

        def query() -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            release.wait(30)
            with lock:
                running -= 1

        @router.get("/api/v1/heavy", openapi_extra=action(Action.SAMPLE_READ))
        async def heavy(_: Annotated[Actor, Depends(authorize(Action.SAMPLE_READ))], querying: QueryingDep) -> None:
            await querying.heavy(query)

        add_router(app, router)

    server = start_server(settings, heavy_route)
    statuses: list[int] = []

    def ask() -> None:
        with server.client(is_admin=True) as client:
            statuses.append(client.get("/api/v1/heavy").status_code)

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while running < HEAVY_QUERIES and time.monotonic() < deadline:
        time.sleep(0.01)
    with server.client(is_admin=True) as client:
        # Needs a thread of the pool; with all forty taken it would wait for `release`, which comes after it.
        assert client.get("/api/v1/projects").status_code == 200
    release.set()
    for thread in threads:
        thread.join()

    assert most == HEAVY_QUERIES
    assert statuses == [200] * 60
