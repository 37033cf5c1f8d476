"""Penstock keeps datasets, versions and splits on a server and streams them into training.

>>> import penstock
>>> client = penstock.Client()
>>> loader = client.loader("demo", split="train", batch_size=64)
>>> for batch in loader:
...     images, labels = batch["image"], batch["tumor"]
>>> loader.close()
>>> client.close()

Importing this package loads neither torch nor the native core nor pyarrow: names are looked up when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock._version import __version__

if TYPE_CHECKING:
    from penstock._batch import Batch
    from penstock._client import Client
    from penstock._datasets import Dataset
    from penstock._errors import (
        APIError,
        ConfigError,
        Conflict,
        ConnectError,
        CorePanicked,
        EngineClosed,
        EngineError,
        ForkedProcess,
        InvalidRequest,
        JobFailed,
        LoaderFailure,
        NotAuthenticated,
        NotFound,
        NotPermitted,
        PenstockError,
        RateLimited,
        SampleCorrupt,
        SampleMissing,
        ServerFailure,
        StateError,
        StoreError,
        StoreFull,
        StoreRefused,
        StoreUnavailable,
        Timeout,
        TransportError,
    )
    from penstock._failures import SampleFailure
    from penstock._jobs import Job
    from penstock._loader import Loader
    from penstock._models import (
        ColumnInfo,
        DatasetInfo,
        FieldInfo,
        JobInfo,
        NewToken,
        Schema,
        Split,
        Subset,
        TokenInfo,
        Version,
    )
    from penstock._state import merge_states

__all__ = [
    "APIError",
    "Batch",
    "Client",
    "ColumnInfo",
    "ConfigError",
    "Conflict",
    "ConnectError",
    "CorePanicked",
    "Dataset",
    "DatasetInfo",
    "EngineClosed",
    "EngineError",
    "FieldInfo",
    "ForkedProcess",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobInfo",
    "Loader",
    "LoaderFailure",
    "NewToken",
    "NotAuthenticated",
    "NotFound",
    "NotPermitted",
    "PenstockError",
    "RateLimited",
    "SampleCorrupt",
    "SampleFailure",
    "SampleMissing",
    "Schema",
    "ServerFailure",
    "Split",
    "StateError",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Subset",
    "Timeout",
    "TokenInfo",
    "TransportError",
    "Version",
    "__version__",
    "merge_states",
]

_HOMES = {
    "Batch": "_batch",
    "Client": "_client",
    "Dataset": "_datasets",
    "Job": "_jobs",
    "Loader": "_loader",
    "SampleFailure": "_failures",
    "merge_states": "_state",
    **dict.fromkeys(
        (
            "ColumnInfo",
            "DatasetInfo",
            "FieldInfo",
            "JobInfo",
            "NewToken",
            "Schema",
            "Split",
            "Subset",
            "TokenInfo",
            "Version",
        ),
        "_models",
    ),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value: object = getattr(import_module(f"penstock.{_HOMES.get(name, '_errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
