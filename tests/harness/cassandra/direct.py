"""One plain CQL connection to one node: no discovery, no routing, so an answer is that node's own."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from cassandra import ConsistencyLevel, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import DefaultConnection
from cassandra.connection import ConnectionException, DefaultEndPoint
from cassandra.protocol import ErrorMessage, QueryMessage

# What a node may answer while it starts, stops or has not heard of a table yet; anything else is a bug of ours.
NOT_NOW = (OSError, ConnectionException, DriverException, ErrorMessage)

Row = dict[str, object]


@dataclass(frozen=True)
class Door:
    """How to log in to one node."""

    address: str
    port: int
    credentials: tuple[str, str] | None = None
    ca_file: str | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"

    def ssl_context(self) -> ssl.SSLContext | None:
        return None if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)


class DirectConnection:
    def __init__(self, door: Door, *, seconds: float = 10) -> None:
        authenticator = None
        if door.credentials:
            user, password = door.credentials
            authenticator = PlainTextAuthProvider(user, password).new_authenticator(door.address)
        context = door.ssl_context()
        DefaultConnection.initialize_reactor()
        self._connection = DefaultConnection.factory(
            DefaultEndPoint(door.address, door.port),
            seconds,
            authenticator=authenticator,
            ssl_context=context,
            ssl_options={"server_hostname": door.address} if context else None,
            protocol_version=4,
        )

    def query(self, statement: str, *, consistency: int = ConsistencyLevel.ONE, seconds: float = 10) -> list[Row]:
        message = QueryMessage(query=statement, consistency_level=consistency)
        result = self._connection.wait_for_response(message, timeout=seconds)
        names: Sequence[str] = getattr(result, "column_names", None) or ()
        rows: Sequence[Sequence[object]] = getattr(result, "parsed_rows", None) or ()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "DirectConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
