"""/readyz tells of every part that does not work, soon, and whoever asks costs nothing more."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import text
from unit.server.base.conftest import LiveServer, new_settings

from penstock_server.api.probes import Probes
from penstock_server.jobs.queue import LocalQueue
from penstock_server.settings import Settings, StoreSettings
from penstock_server.store import StoreGateway


def with_services(**parts: Any) -> Callable[[FastAPI], None]:
    def change(app: FastAPI) -> None:
        app.state.services = replace(app.state.services, **parts)

    return change


def checks_of(server: LiveServer) -> dict[str, dict[str, Any]]:
    answer = httpx.get(f"{server.url}/readyz", timeout=20)
    document = answer.json()
    is_ready = all(check["ok"] for check in document["checks"].values())
    assert (answer.status_code, document["status"]) == ((200, "ready") if is_ready else (503, "not_ready"))
    checks: dict[str, dict[str, Any]] = document["checks"]
    return checks


def drop_connections(port: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            port.accept()[0].close()


def test_everything_works(server: LiveServer) -> None:
    assert all(check == {"ok": True, "detail": None} for check in checks_of(server).values())


def test_catalog_of_another_version_is_not_ready(server: LiveServer) -> None:
    with server.app.state.services.catalog.unit() as unit:
        unit.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert "newer version of Penstock" in checks_of(server)["catalog"]["detail"]

    with server.app.state.services.catalog.unit() as unit:
        unit.session.execute(text("DROP TABLE alembic_version"))
    assert "`penstock migrate`" in checks_of(server)["catalog"]["detail"]


def test_worker_that_is_lost_is_not_ready(settings: Settings, start_server: Callable[..., LiveServer]) -> None:
    problems: list[str | None] = ["the worker has given no sign of life for 4 s"]
    server = start_server(settings, with_services(queue=LocalQueue(lambda: problems[0])))

    assert checks_of(server)["queue"] == {"ok": False, "detail": problems[0]}
    problems[0] = None
    assert checks_of(server)["queue"]["ok"]


def test_store_that_cannot_be_opened_is_not_ready_and_hides_why(
    tmp_path: Path, empty_catalog: Path, start_server: Callable[..., LiveServer]
) -> None:
    """A port that takes connections and drops them: a look at the port alone would find the store well."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        threading.Thread(target=drop_connections, args=(port,), daemon=True).start()
        point = f"127.0.0.1:{port.getsockname()[1]}"
        options = {"kind": "cql", "contact_points": [point], "username": "penstock", "password": "hunter2"}
        store = StoreGateway(StoreSettings.model_validate(options), tmp_path)
        assert store.health() is None
        server = start_server(new_settings(tmp_path, empty_catalog), with_services(store=store))
        check = checks_of(server)["store"]

    assert not check["ok"]
    assert point not in check["detail"]


def test_part_that_hangs_is_bounded_and_looked_at_once() -> None:
    looks, release = [], threading.Event()

    def hang() -> str | None:
        looks.append(threading.current_thread())
        release.wait(30)
        return None

    async def ask() -> None:
        probes = Probes(seconds=0.2)
        for _ in range(3):
            found = await probes.check_all({"store": hang, "queue": lambda: None})
            assert found["store"].detail == "no answer within 0.2 s"
            assert found["queue"].ok
        assert len(looks) == 1
        assert looks[0].daemon
        release.set()
        looks[0].join(10)
        assert (await probes.check_all({"store": lambda: None}))["store"].ok

    asyncio.run(ask())


def test_probe_that_breaks_is_a_part_that_does_not_work() -> None:
    def broken() -> str | None:
        raise ZeroDivisionError

    found = asyncio.run(Probes().check_all({"store": broken}))

    assert found["store"].detail == "the check itself failed; see the server's log"
