from itertools import count

import redis

from harness.processes import Process
from harness.programs import find_redis_server
from harness.run import Run

_HOST = 42
_DATABASES = 4096


class RedisServer:
    """One Redis a run; each test gets a database number of its own."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.address = run.block.address(_HOST)
        self.port = run.block.claim_port([_HOST])
        self._numbers = count(1)
        self.process = self._start()

    @property
    def url(self) -> str:
        return self.database_url(0)

    @property
    def processes(self) -> list[Process]:
        return [self.process]

    def database_url(self, number: int) -> str:
        return f"redis://{self.address}:{self.port}/{number}"

    def new_database_url(self) -> str:
        return self.database_url(next(self._numbers) % _DATABASES)

    def flush(self, url: str) -> None:
        with redis.Redis.from_url(url) as client:
            client.flushdb()

    def kill(self) -> None:
        self.process.kill()

    def freeze(self) -> None:
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    def restart(self) -> None:
        """Back on the same address, empty: nothing is kept on disk."""
        self.process.kill()
        self.process = self._start()

    def restore(self) -> None:
        """Whatever a test did to it, it answers again."""
        self.process.thaw()
        if not self.process.is_running:
            self.process = self._start()

    def _start(self) -> Process:
        folder = self._run.service_folder("redis")
        options = {
            "bind": self.address,
            "port": str(self.port),
            "dir": str(folder),
            "databases": str(_DATABASES),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
        }
        argv = [str(find_redis_server()), *(part for name, value in options.items() for part in (f"--{name}", value))]
        process = self._run.spawn("redis", argv)
        process.wait_ready(self._answers, seconds=60, every_seconds=0.05)
        return process

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=5) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
