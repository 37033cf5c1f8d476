"""A driver session for tests themselves: straight to the nodes, past the relays and what they do to packets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import (
    AddressTranslator,
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import SimpleStatement, dict_factory

from harness.cassandra.direct import Door, Row

LOCAL_DC = "datacenter1"
_CHANGES_SCHEMA = ("CREATE", "ALTER", "DROP")


class _PastTheRelays(AddressTranslator):  # type: ignore[misc]  # the driver has no types
    def __init__(self, nodes_by_relay: Mapping[str, str]) -> None:
        self._nodes_by_relay = nodes_by_relay

    def translate(self, addr: str) -> str:
        return self._nodes_by_relay.get(addr, addr)


class ControlSession:
    """Rows as dictionaries; a statement that changes the schema returns when every node has the change."""

    def __init__(
        self, doors: Sequence[Door], *, nodes_by_relay: Mapping[str, str], wait_for_schema: Callable[[], None]
    ) -> None:
        door = doors[0]
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=LOCAL_DC)),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=60,
            row_factory=dict_factory,
        )
        self._wait_for_schema = wait_for_schema
        self._cluster = Cluster(
            [each.address for each in doors],
            port=door.port,
            protocol_version=4,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            address_translator=_PastTheRelays(nodes_by_relay),
            auth_provider=PlainTextAuthProvider(*door.credentials) if door.credentials else None,
            ssl_context=door.ssl_context(),
            reconnection_policy=ConstantReconnectionPolicy(1, None),
            connect_timeout=30,
            control_connection_timeout=30,
            max_schema_agreement_wait=60,
            compression=False,
        )
        self.driver: Any = self._cluster.connect()

    def execute(
        self, statement: Any, parameters: Sequence[object] | None = None, *, consistency: int | None = None
    ) -> list[Row]:
        """`statement` is text (placeholders `%s`) or a bound statement."""
        text = statement if isinstance(statement, str) else ""
        if text and consistency is not None:
            statement = SimpleStatement(text, consistency_level=consistency)
        rows: list[Row] = list(self.driver.execute(statement, parameters))
        if text.lstrip().upper().startswith(_CHANGES_SCHEMA):
            self._wait_for_schema()
        return rows

    def prepare(self, statement: str, *, consistency: int = ConsistencyLevel.LOCAL_QUORUM) -> Any:
        prepared = self.driver.prepare(statement)
        prepared.consistency_level = consistency
        return prepared

    def close(self) -> None:
        self._cluster.shutdown()
