"""A Cassandra for tests: one node, one node with password and TLS, or a ring of three behind relays."""

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.cassandra.direct import NOT_NOW, DirectConnection, Door
from harness.cassandra.launch import COMMIT_LOG_MIB, NodeSettings
from harness.cassandra.node import CassandraNode
from harness.cassandra.readiness import (
    create_keyspace_statement,
    schema_difference,
    wait_until_answering,
    wait_until_ready,
    what_is_missing,
)
from harness.cassandra.session import LOCAL_DC, ControlSession
from harness.certificates import ServerCertificate, make_server_certificate
from harness.errors import HarnessError
from harness.processes import Process
from harness.relay import Relay
from harness.run import Run

_ATTEMPTS = 3
_ANSWER_SECONDS = 300.0
_READY_SECONDS = 150.0
_RELAY_OFFSET = 10


@dataclass(frozen=True)
class Layout:
    """What kind of cluster; `first_host` is its place in the run's block of addresses."""

    name: str
    first_host: int
    size: int = 1
    is_secure: bool = False
    has_relays: bool = False
    has_full_jit: bool = False
    # The client and the relay come first on the cores, as if each had a machine of its own.
    gives_way: bool = False
    heap_mib: int = 512


ONE_NODE = Layout("cassandra", 21)
SECURE = Layout("cassandra-secure", 31, is_secure=True)
RING = Layout("cassandra-ring", 1, size=3, has_relays=True)


class CassandraCluster:
    def __init__(self, run: Run, layout: Layout) -> None:
        self._run = run
        self.layout = layout
        self.local_dc = LOCAL_DC
        self._hosts = range(layout.first_host, layout.first_host + layout.size)
        relay_hosts = [host + _RELAY_OFFSET for host in self._hosts] if layout.has_relays else []
        # Drivers expect the same port on every node, and find the relays through the announced addresses.
        self.port = run.block.claim_port([*self._hosts, *relay_hosts])
        self._storage_port = run.block.claim_port(list(self._hosts))
        self._certificate: ServerCertificate | None = None
        self.credentials: tuple[str, str] | None = None
        if layout.is_secure:
            addresses = [run.block.address(host) for host in (*self._hosts, *relay_hosts)]
            folder = run.service_folder(f"{layout.name}-certificates")
            self._certificate = make_server_certificate(folder, addresses)
            self.credentials = ("cassandra", "cassandra")
        self.nodes: list[CassandraNode] = [self._node(index) for index in range(layout.size)]
        self.start_seconds = self._start()
        self.relays: list[Relay] = [
            Relay(run, target=node.door.endpoint, listen=self._announced(index))
            for index, node in enumerate(self.nodes)
            if layout.has_relays
        ]

    @property
    def contact_points(self) -> list[str]:
        """`address:port` of each node as a client should reach it: the relays where there are any."""
        return [f"{node.settings.announced_address}:{self.port}" for node in self.nodes]

    @property
    def ca_file(self) -> Path | None:
        return self._certificate.ca_file if self._certificate else None

    @property
    def ca_pem(self) -> str | None:
        return self._certificate.ca_pem if self._certificate else None

    @cached_property
    def session(self) -> ControlSession:
        """Straight to the nodes, past the relays: for setting up and for checking by independent means."""
        return ControlSession(
            [node.door for node in self.nodes],
            nodes_by_relay={node.settings.announced_address: node.address for node in self.nodes},
            wait_for_schema=self.wait_for_schema,
        )

    @property
    def processes(self) -> list[Process]:
        return [*(node.process for node in self.nodes), *(relay.process for relay in self.relays)]

    def store_config(self, keyspace: str) -> dict[str, object]:
        """What the native store takes to open this keyspace."""
        user, password = self.credentials or (None, None)
        return {
            "kind": "cql",
            "contact_points": self.contact_points,
            "local_dc": self.local_dc,
            "keyspace": keyspace,
            "username": user,
            "password": password,
            "ca_pem": self.ca_pem,
        }

    def create_keyspace(self) -> str:
        """A new keyspace with a replica on every node, visible on every node when this returns."""
        name = f"ps_{uuid.uuid4().hex}"
        self._change_schema(create_keyspace_statement(name, replication=self.layout.size))
        self.wait_for_keyspace(name)
        return name

    def drop_keyspace(self, name: str) -> None:
        self._change_schema(f"DROP KEYSPACE IF EXISTS {name}")

    def wait_for_keyspace(self, name: str) -> None:
        """For keyspaces that somebody else makes: returns when every node that is up can see it."""
        find = f"SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{name}'"

        def missing(doors: Sequence[Door], nodes: Sequence[DirectConnection]) -> str | None:
            without = [door.address for door, node in zip(doors, nodes, strict=True) if not node.query(find)]
            return f"{', '.join(without)} cannot see keyspace {name}" if without else None

        self._until(missing)
        self.wait_for_schema()

    def wait_for_schema(self) -> None:
        """Returns when all nodes that are up have the same schema, asked one by one."""
        self._until(schema_difference)

    def wait_until_ready(self) -> None:
        """All nodes that are up know each other, see each other as up and take writes."""
        up = [node for node in self.nodes if node.is_up]

        def check_alive() -> None:
            for node in up:
                node.check_alive()

        doors = [node.door for node in up]
        wait_until_answering(doors, seconds=_ANSWER_SECONDS, check_alive=check_alive)
        wait_until_ready(doors, replication=self.layout.size, seconds=_READY_SECONDS, check_alive=check_alive)

    def restore(self) -> None:
        """Undo whatever a test did: relays clear, every node thawed or started again, all of them ready."""
        for relay in self.relays:
            relay.clear()
        is_disturbed = False
        for node in self.nodes:
            if node.is_frozen:
                node.thaw()
                is_disturbed = True
            if not node.is_running:
                node.start()
                is_disturbed = True
        doors = [node.door for node in self.nodes]
        if is_disturbed or what_is_missing(doors, replication=self.layout.size) is not None:
            self.wait_until_ready()

    def log_tails(self) -> str:
        return "\n".join(process.log_tail() for process in self.processes)

    def close(self) -> None:
        if "session" in self.__dict__:
            self.session.close()
        for relay in self.relays:
            relay.stop()
        for node in self.nodes:
            node.kill()

    def _node(self, index: int) -> CassandraNode:
        name = f"{self.layout.name}-{index + 1}" if self.layout.size > 1 else self.layout.name
        address = self._run.block.address(self._hosts[index])
        settings = NodeSettings(
            name=name,
            folder=self._run.service_folder(name),
            commit_log=self._run.memory_folder(f"{name}-commitlog", room_bytes=COMMIT_LOG_MIB * 2**20),
            address=address,
            announced_address=self._announced(index).rpartition(":")[0],
            native_port=self.port,
            storage_port=self._storage_port,
            # All of them are seeds: with one, nodes that start together can fail to hear each other.
            seeds=[self._run.block.address(host) for host in self._hosts],
            cluster_name=f"{self.layout.name}-{self._run.block.prefix}",
            initial_token=-(2**63) + index * (2**64 // self.layout.size),
            heap_mib=self.layout.heap_mib,
            has_full_jit=self.layout.has_full_jit,
            gives_way=self.layout.gives_way,
            has_password=self.layout.is_secure,
            certificate=self._certificate,
        )
        door = Door(address, self.port, self.credentials, str(self.ca_file) if self.ca_file else None)
        return CassandraNode(self._run, settings, door=door, on_restart=self.wait_until_ready)

    def _announced(self, index: int) -> str:
        offset = _RELAY_OFFSET if self.layout.has_relays else 0
        return f"{self._run.block.address(self._hosts[index] + offset)}:{self.port}"

    def _start(self) -> float:
        started = time.monotonic()
        for attempt in range(1, _ATTEMPTS + 1):
            for node in self.nodes:
                node.start()
            try:
                self.wait_until_ready()
            except HarnessError as error:
                reason = str(error).splitlines()[0]
                tails = "\n".join(node.process.log_tail(40) for node in self.nodes)
                for node in self.nodes:
                    node.kill()
                    node.wipe()
                if attempt == _ATTEMPTS:
                    message = f"{self.layout.name} failed to start {attempt} times: {reason}"
                    raise HarnessError(f"{message}\n{tails}") from None
                sys.stderr.write(f"harness: {self.layout.name} starts anew from empty folders: {reason}\n")
            else:
                break
        return time.monotonic() - started

    def _change_schema(self, statement: str) -> None:
        """Statements here can be repeated: one that timed out on a busy machine may have worked."""

        def change(_: Sequence[Door], nodes: Sequence[DirectConnection]) -> str | None:
            nodes[0].query(statement, seconds=30)
            return None

        self._until(change)
        self.wait_for_schema()

    def _until(
        self, check: Callable[[Sequence[Door], Sequence[DirectConnection]], str | None], *, seconds: float = 90
    ) -> None:
        doors = [node.door for node in self.nodes if node.is_up]
        deadline = time.monotonic() + seconds
        missing: str | None = "not asked yet"
        while True:
            with ExitStack() as stack:
                try:
                    missing = check(doors, [stack.enter_context(DirectConnection(door)) for door in doors])
                except NOT_NOW as error:
                    missing = f"{type(error).__name__}: {error}"
            if missing is None:
                return
            if time.monotonic() > deadline:
                raise HarnessError(f"{self.layout.name}: after {seconds:.0f} s {missing}\n{self.log_tails()}")
            time.sleep(0.1)
