"""Penstock as a user runs it: the real commands, on embedded or on production parts."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import penstock
from harness.cassandra.cluster import CassandraCluster
from harness.postgres import PostgresServer
from harness.redis_server import RedisServer

PENSTOCK = Path(sys.executable).with_name("penstock")
LOGIN_LINE = re.compile(r"http://\S+/login#code=\S+")
START_SECONDS = 120
STOP_SECONDS = 30
DEMO_SECONDS = 300


@dataclass
class Process:
    """One of our commands with its output kept, for a test that fails to show."""

    name: str
    command: list[str]
    environment: dict[str, str]
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.popen = subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            self.output.extend(iter(lines.readline, ""))

    def wait_for(self, pattern: re.Pattern[str], seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in list(self.output):
                if match := pattern.search(line):
                    return match.group(0)
            if self.popen.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{self.name} did not print {pattern.pattern!r} within {seconds} s:\n{self.tail()}")

    def tail(self, lines: int = 60) -> str:
        return "".join(self.output[-lines:])

    def stop(self) -> int:
        """As Ctrl-C in a terminal does; what does not end then is a failure, and is killed."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGINT)
        try:
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
            raise AssertionError(f"{self.name} was still there {STOP_SECONDS} s after Ctrl-C:\n{self.tail()}") from None
        finally:
            self._reader.join(5)


@dataclass(frozen=True)
class Deployment:
    """A running Penstock with the demo dataset published."""

    kind: str
    url: str
    environment: dict[str, str]
    processes: list[Process]

    def login_link(self) -> str:
        """A fresh one-time link; the one printed at start may have been used."""
        printed = subprocess.run(
            [str(PENSTOCK), "login-link"], env=self.environment, capture_output=True, text=True, check=True
        )
        match = LOGIN_LINE.search(printed.stdout)
        assert match, printed.stdout
        return match.group(0)

    def client(self) -> penstock.Client:
        discovered = json.loads((Path(self.environment["PENSTOCK_STATE_FOLDER"]) / "server.json").read_text())
        return penstock.Client(discovered["url"], token=discovered["token"])

    def tails(self) -> str:
        return "\n".join(f"--- {process.name}\n{process.tail()}" for process in self.processes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clean_environment(folder: Path, **settings: str) -> dict[str, str]:
    """The caller's environment without any PENSTOCK_ variable, and with folders of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return (
        kept
        | {
            "PENSTOCK_DATA_FOLDER": str(folder / "data"),
            "PENSTOCK_STATE_FOLDER": str(folder / "state"),
            "PENSTOCK_CACHE_FOLDER": str(folder / "cache"),
            "PENSTOCK_INGEST__ALLOWED_ROOTS": json.dumps([str(folder)]),
        }
        | settings
    )


@contextlib.contextmanager
def running(kind: str, folder: Path, settings: dict[str, str]) -> Iterator[Deployment]:
    """Starts the server with its demo; on production parts the worker is a process of its own."""
    port = free_port()
    environment = clean_environment(folder, **settings)
    has_own_worker = settings.get("PENSTOCK_QUEUE__KIND") == "celery"
    processes = [Process("server", [str(PENSTOCK), "up", "--demo", "--port", str(port)], environment)]
    try:
        processes[0].wait_for(LOGIN_LINE, START_SECONDS)
        if has_own_worker:
            processes.append(Process("worker", [str(PENSTOCK), "worker"], environment))
        deployment = Deployment(kind, f"http://127.0.0.1:{port}", environment, processes)
        wait_for_demo(deployment)
        yield deployment
    finally:
        for process in reversed(processes):
            process.stop()


def wait_for_demo(deployment: Deployment) -> None:
    deadline = time.monotonic() + DEMO_SECONDS
    with deployment.client() as client:
        while time.monotonic() < deadline:
            with contextlib.suppress(penstock.PenstockError):
                if client.dataset("demo").splits:
                    return
            assert all(process.popen.poll() is None for process in deployment.processes), deployment.tails()
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
