import os
import pwd
import secrets
import signal
import subprocess
import uuid
from pathlib import Path

import psycopg
from psycopg import sql

from harness.errors import HarnessError
from harness.processes import Process
from harness.programs import find_postgres_programs
from harness.run import Run, as_user

_HOST = 41
_USER = "penstock"
# Nothing here has to survive a power cut; a killed server still finds its pages in the page cache.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "unix_socket_directories": "",
    # In the data folder, which goes with the run; in /dev/shm a killed server would leave its segments behind.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_min_messages": "warning",
}


class PostgresServer:
    """One PostgreSQL a run; each test gets a database of its own."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._programs = find_postgres_programs()
        self._account = _account()
        self.address = run.block.address(_HOST)
        self.port = run.block.claim_port([_HOST])
        self._password = secrets.token_hex(8)
        self._folder = run.service_folder("postgres", user=self._account)
        self._initialise()
        self.process = self._start()

    @property
    def processes(self) -> list[Process]:
        return [self.process]

    def url(self, database: str) -> str:
        """An address for SQLAlchemy."""
        return f"postgresql+psycopg://{_USER}:{self._password}@{self.address}:{self.port}/{database}"

    def create_database(self) -> str:
        name = f"test_{uuid.uuid4().hex}"
        with self._connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        with self._connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def kill(self) -> None:
        # SIGKILL would leave backends that still answer for a moment; SIGQUIT ends them all without a checkpoint.
        self.process.stop(with_signal=signal.SIGQUIT)

    def restart(self) -> None:
        """Crash and come back with the same data."""
        self.kill()
        self.process = self._start()

    def restore(self) -> None:
        if not self.process.is_running:
            self.process = self._start()

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        os.chmod(password_file, 0o644)
        argv = [self._programs / "initdb", "-D", self._folder / "data", "-U", _USER, "--pwfile", password_file]
        argv += ["--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(
            [*as_user(self._account), *map(str, argv)], cwd="/", capture_output=True, text=True, check=False
        )
        password_file.unlink()
        if done.returncode != 0:
            raise HarnessError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _start(self) -> Process:
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        argv = [
            str(self._programs / "postgres"),
            "-D",
            str(self._folder / "data"),
            "-h",
            self.address,
            "-p",
            str(self.port),
        ]
        process = self._run.spawn(
            "postgres", [*argv, *settings], cwd=Path("/"), user=self._account, death_signal="QUIT"
        )
        process.wait_ready(self._answers, seconds=90, every_seconds=0.1)
        return process

    def _answers(self) -> bool:
        try:
            with self._connect() as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=self.address,
            port=self.port,
            user=_USER,
            password=self._password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=10,
        )


def _account() -> str | None:
    """PostgreSQL refuses root: take another account of the machine when we are root."""
    if os.geteuid() != 0:
        return None
    names = {account.pw_name for account in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
