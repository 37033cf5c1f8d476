"""Wake-ups through Celery on Redis, and the settings that both ends need."""

from typing import Any
from uuid import UUID

import structlog
from celery import Celery
from celery.exceptions import CeleryError
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from penstock_server.jobs.names import QUEUE, RUN_JOB

_log = structlog.get_logger(__name__)
_CONNECT_TIMEOUT_SECONDS = 2


def celery_settings() -> dict[str, Any]:
    """One set for sender and worker: anything less loses tasks when a worker is killed."""
    return {
        # The anonymous exchange routes by queue name alone: a flushed Redis has no bindings left to look up.
        "task_queues": [Queue(QUEUE, Exchange(""), routing_key=QUEUE)],  # type: ignore[no-untyped-call]  # kombu has none
        "task_default_queue": QUEUE,
        "task_default_exchange": "",
        "task_default_routing_key": QUEUE,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_publish_retry": False,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "visibility_timeout": 600,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "socket_timeout": 30,
            "socket_keepalive": True,
        },
    }


class CeleryQueue:
    """Sends `penstock.run_job`; a broker that is away is logged, and the workers' sweepers make up for it."""

    def __init__(self, redis_url: str) -> None:
        self._celery = Celery("penstock", broker=redis_url, set_as_current=False)
        self._celery.conf.update(celery_settings())
        # A caller waits for the answer of a request, so one more try is all that a broker gets.
        once = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
        limits = dict.fromkeys(("connect_retries_timeout", "socket_timeout"), _CONNECT_TIMEOUT_SECONDS)
        self._celery.conf.broker_transport_options |= once | limits

    def wake(self, job_id: UUID) -> None:
        try:
            self._celery.send_task(RUN_JOB, args=[str(job_id)], queue=QUEUE)
        except (KombuError, OperationalError, RedisError, CeleryError, OSError) as error:
            _log.warning("queue.wake_failed", job_id=str(job_id), reason=type(error).__name__)

    def depth(self) -> int:
        """How many wake-ups are waiting; raises what the broker's client raises."""
        with self._celery.connection_for_write() as connection:
            size: int = connection.default_channel._size(QUEUE)
        return size

    def health(self) -> str | None:
        try:
            with self._celery.connection_for_write() as connection:
                connection.default_channel.client.ping()
        except (KombuError, OperationalError, RedisError, OSError) as error:
            return f"Redis does not answer ({type(error).__name__})"
        return None

    def close(self) -> None:
        self._celery.close()
