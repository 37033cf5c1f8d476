"""Settings of a worker process itself (PENSTOCK_WORKER_<KEY>); what it works on is the server's settings."""

import os
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock_server.jobs.leases import LEASE_SECONDS
from penstock_server.settings import SettingsInvalid


class WorkerSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PENSTOCK_WORKER_", extra="ignore")

    lease_seconds: Annotated[float, Field(ge=1, le=600)] = LEASE_SECONDS
    poll_seconds: Annotated[float, Field(gt=0, le=60)] = 0.5
    sweep_seconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    threads: Annotated[int, Field(ge=1, le=64)] = 2
    concurrency: Annotated[int, Field(ge=1, le=256)] = os.cpu_count() or 1


def load_worker_settings() -> WorkerSettings:
    """Reads the environment; raises SettingsInvalid with every problem at once."""
    try:
        return WorkerSettings()
    except ValidationError as error:
        problems = [f"PENSTOCK_WORKER_{str(each['loc'][0]).upper()}: {each['msg']}" for each in error.errors()]
        raise SettingsInvalid(problems) from None
