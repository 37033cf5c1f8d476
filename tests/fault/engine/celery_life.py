"""A Celery worker whose children are forked from a process that has a loader in use. Run by `celery -A`."""

import json
import os
from typing import Any

from celery import Celery
from celery.signals import worker_init
from fault.engine.life_on_ring import LifeOnRing

import penstock

LIFE_VARIABLE, BROKER_VARIABLE = "LIFE_ON_RING", "LIFE_BROKER"

_inherited: list[Any] = []


def life_of_environment() -> LifeOnRing:
    return LifeOnRing(**json.loads(os.environ[LIFE_VARIABLE]))


def create_app(broker: str) -> Celery:
    app = Celery("life", broker=broker, backend=broker)
    app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True, result_expires=600)

    @app.task(name="life.use_inherited")  # type: ignore[untyped-decorator]  # celery has no types
    def use_inherited() -> str:
        """What comes of the loader of the worker's own process in one of its children."""
        loader, running = _inherited
        for use in (lambda: next(running), loader.stats, lambda: len(loader)):
            try:
                use()
            except penstock.ForkedProcess:
                continue
            return f"{use} worked"
        loader.close()
        return "refused"

    @app.task(name="life.read_rank")  # type: ignore[untyped-decorator]  # celery has no types
    def read_rank(rank: int, world_size: int) -> list[str]:
        return life_of_environment().ids_of_rank(rank, world_size)

    return app


def _use_a_loader_first(**_: Any) -> None:
    loader = life_of_environment().loader()
    running = iter(loader)
    next(running)
    _inherited[:] = [loader, running]


if BROKER_VARIABLE in os.environ:
    app = create_app(os.environ[BROKER_VARIABLE])
    worker_init.connect(_use_a_loader_first)
