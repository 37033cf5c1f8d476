"""All services of a run, each started when it is first asked for.

By hand: `PYTHONPATH=tests python -m harness.services cassandra redis` prints addresses and waits for Ctrl-C.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from harness.cassandra.cluster import ONE_NODE, RING, SECURE, CassandraCluster
from harness.errors import HarnessError
from harness.postgres import PostgresServer
from harness.processes import Process
from harness.programs import find_chromium
from harness.redis_server import RedisServer
from harness.run import Run


class Services:
    def __init__(self, run: Run | None = None) -> None:
        self.run = run or Run()
        for leftover in self.run.removed_leftovers:
            sys.stderr.write(f"harness: an earlier run had left {leftover}; it is stopped now\n")

    @cached_property
    def cassandra(self) -> CassandraCluster:
        return CassandraCluster(self.run, ONE_NODE)

    @cached_property
    def cassandra_secure(self) -> CassandraCluster:
        return CassandraCluster(self.run, SECURE)

    @cached_property
    def cassandra_ring(self) -> CassandraCluster:
        return CassandraCluster(self.run, RING)

    @cached_property
    def redis(self) -> RedisServer:
        return RedisServer(self.run)

    @cached_property
    def postgres(self) -> PostgresServer:
        return PostgresServer(self.run)

    @cached_property
    def chromium(self) -> Path:
        return find_chromium()

    def started(self, name: str) -> list[Process]:
        """Processes of a service, none when it was never asked for."""
        service = self.__dict__.get(name)
        return service.processes if isinstance(service, CassandraCluster | RedisServer | PostgresServer) else []

    def close(self) -> None:
        if "postgres" in self.__dict__:
            self.postgres.kill()
        for name in ("cassandra", "cassandra_secure", "cassandra_ring"):
            cluster = self.__dict__.get(name)
            if isinstance(cluster, CassandraCluster):
                cluster.close()
        self.run.close()


def _describe_cassandra(cluster: CassandraCluster) -> str:
    lines = [f"contact points {', '.join(cluster.contact_points)} (ready after {cluster.start_seconds:.1f} s)"]
    lines += [f"node {node.name} at {node.door.endpoint}" for node in cluster.nodes if cluster.relays]
    if cluster.credentials:
        lines.append(f"user and password {'/'.join(cluster.credentials)}, CA {cluster.ca_file}")
    return "\n  ".join(lines)


_DESCRIPTIONS: dict[str, Callable[[Services], str]] = {
    "cassandra": lambda services: _describe_cassandra(services.cassandra),
    "cassandra_secure": lambda services: _describe_cassandra(services.cassandra_secure),
    "cassandra_ring": lambda services: _describe_cassandra(services.cassandra_ring),
    "redis": lambda services: services.redis.url,
    "postgres": lambda services: services.postgres.url(services.postgres.create_database()),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.services", description="Start services of the tests.")
    parser.add_argument("names", nargs="*", metavar="SERVICE", help=" ".join(_DESCRIPTIONS))
    names: list[str] = parser.parse_args().names or ["cassandra", "redis", "postgres"]
    if unknown := [name for name in names if name not in _DESCRIPTIONS]:
        parser.error(f"no service {', '.join(unknown)}; there are: {' '.join(_DESCRIPTIONS)}")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    services = Services()
    try:
        for name in names:
            print(f"{name}\n  {_DESCRIPTIONS[name](services)}", flush=True)
        print("Ctrl-C stops everything.", flush=True)
        ended.wait()
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        services.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
