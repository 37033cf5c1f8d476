"""Events in a Redis stream: the production way. Redis may be wiped; only news is lost."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import redis

from penstock_server.events.port import BusEvent, Topic
from penstock_server.events.tail import TailingBus

STREAM = "penstock:events"
MAX_EVENTS = 10_000
_TIMEOUT_SECONDS = 2.0


class RedisBus(TailingBus):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._redis = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS, decode_responses=True
        )

    def _append(self, topic: Topic, kind: str, project_id: UUID, payload: Mapping[str, Any]) -> None:
        fields: dict[Any, Any] = {
            "at": datetime.now(UTC).isoformat(),
            "topic": topic,
            "kind": kind,
            "project_id": str(project_id),
            "payload": json.dumps(dict(payload)),
        }
        self._redis.xadd(STREAM, fields, maxlen=MAX_EVENTS, approximate=True)

    def _newest_id(self) -> str:
        rows = cast("list[tuple[str, dict[str, str]]]", self._redis.xrevrange(STREAM, count=1))
        return rows[0][0] if rows else "0-0"

    def _read_after(self, event_id: str, limit: int) -> list[BusEvent]:
        rows = self._redis.xrange(STREAM, min=f"({event_id}", count=limit)
        return [_event(event_id, fields) for event_id, fields in cast("list[tuple[str, dict[str, str]]]", rows)]

    def _place(self, event_id: str) -> tuple[int, ...]:
        milliseconds, _, sequence = event_id.partition("-")
        return int(milliseconds), int(sequence)

    def health(self) -> str | None:
        try:
            self._redis.ping()
        except redis.RedisError as error:
            return f"Redis does not answer: {type(error).__name__}"
        return None

    def close(self) -> None:
        super().close()
        self._redis.close()


def _event(event_id: str, fields: Mapping[str, str]) -> BusEvent:
    return BusEvent(
        id=event_id,
        at=datetime.fromisoformat(fields["at"]),
        topic=cast("Topic", fields["topic"]),
        kind=fields["kind"],
        project_id=UUID(fields["project_id"]),
        payload=json.loads(fields["payload"]),
    )
