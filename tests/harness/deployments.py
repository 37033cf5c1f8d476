"""Penstock as a user runs it: the real commands, on embedded or on production parts."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

import penstock
from harness.cassandra.cluster import CassandraCluster
from harness.penstock_processes import LOGIN_LINK, PENSTOCK, folder_settings, start_server, start_worker
from harness.postgres import PostgresServer
from harness.processes import Process
from harness.redis_server import RedisServer
from harness.run import Run

STOP_SECONDS = 30
DEMO_SECONDS = 300


@dataclass(frozen=True)
class Deployment:
    """A running Penstock with the demo dataset published."""

    kind: str
    url: str
    run: Run
    settings: dict[str, str]
    processes: list[Process]

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to find this Penstock."""
        return self.run.environment(self.settings)

    def login_link(self) -> str:
        """A fresh one-time link; the one printed at start may have been used."""
        found = self._discovered
        bearer = {"Authorization": f"Bearer {found['token']}"}
        answer = httpx.post(f"{found['url']}/api/v1/session/code", headers=bearer, timeout=60)
        return str(answer.raise_for_status().json()["login_url"])

    def login_link_of_the_command(self) -> str:
        """The same from `penstock login-link`, which takes seconds to start."""
        printed = subprocess.run(
            [str(PENSTOCK), "login-link"], env=self.environment, capture_output=True, text=True, check=True
        )
        match = LOGIN_LINK.search(printed.stdout)
        assert match, printed.stdout
        return match.group(0)

    def client(self) -> penstock.Client:
        return penstock.Client(self._discovered["url"], token=self._discovered["token"])

    @property
    def _discovered(self) -> dict[str, str]:
        """What the server tells the programs of its machine."""
        found: dict[str, str] = json.loads((Path(self.settings["PENSTOCK_STATE_FOLDER"]) / "server.json").read_text())
        return found

    def tails(self) -> str:
        return "\n".join(process.log_tail() for process in self.processes)


@contextlib.contextmanager
def running(kind: str, run: Run, folder: Path, settings: dict[str, str]) -> Iterator[Deployment]:
    """Starts the server with its demo; on production parts the worker is a process of its own."""
    settings = folder_settings(folder, **settings)
    server = start_server(run, settings, "--demo")
    processes = [server.process]
    try:
        if settings.get("PENSTOCK_QUEUE__KIND") == "celery":
            processes.append(start_worker(run, settings))
        deployment = Deployment(kind, server.url, run, settings, processes)
        wait_for_demo(deployment)
        yield deployment
    finally:
        # As Ctrl-C in a terminal does.
        for process in reversed(processes):
            process.stop(with_signal=signal.SIGINT, seconds=STOP_SECONDS)


def wait_for_demo(deployment: Deployment) -> None:
    deadline = time.monotonic() + DEMO_SECONDS
    with deployment.client() as client:
        while time.monotonic() < deadline:
            with contextlib.suppress(penstock.PenstockError):
                if client.dataset("demo").splits:
                    return
            assert all(process.is_running for process in deployment.processes), deployment.tails()
            time.sleep(0.5)
    raise AssertionError(f"the demo was not there after {DEMO_SECONDS} s:\n{deployment.tails()}")


def production_settings(
    folder: Path, *, cassandra: CassandraCluster, postgres: PostgresServer, redis: RedisServer
) -> dict[str, str]:
    """PostgreSQL, Cassandra with password and TLS, Celery and Redis streams."""
    redis_url = redis.new_database_url()
    settings = {
        "PENSTOCK_CATALOG__URL": postgres.url(postgres.create_database()),
        "PENSTOCK_STORE__KIND": "cql",
        "PENSTOCK_STORE__CONTACT_POINTS": json.dumps(cassandra.contact_points),
        "PENSTOCK_STORE__LOCAL_DC": cassandra.local_dc,
        "PENSTOCK_STORE__REPLICATION_FACTOR": "1",
        "PENSTOCK_QUEUE__KIND": "celery",
        "PENSTOCK_QUEUE__REDIS_URL": redis_url,
        "PENSTOCK_EVENTS__KIND": "redis",
        "PENSTOCK_EVENTS__REDIS_URL": redis.new_database_url(),
    }
    if cassandra.credentials is not None:
        settings["PENSTOCK_STORE__USERNAME"], settings["PENSTOCK_STORE__PASSWORD"] = cassandra.credentials
    if cassandra.ca_pem is not None:
        ca_file = folder / "ca.pem"
        ca_file.write_text(cassandra.ca_pem)
        settings["PENSTOCK_STORE__CA_FILE"] = str(ca_file)
    return settings
