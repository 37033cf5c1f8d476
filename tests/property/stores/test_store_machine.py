"""E3 without services: memory and LMDB behave alike. (With CQL: `tests/fault/embedded/test_stores_agree.py`.)"""

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, settings
from property.stores.machine import StoreMachine

from harness.soak import repetitions
from penstock._native import Store

_numbers = itertools.count()
# In memory where there is such a folder: what is tested is not the disk's patience.
_SHARED_MEMORY = Path("/dev/shm")


class EmbeddedStores(StoreMachine):
    def openers(self) -> dict[str, Callable[[], Store]]:
        self.folder = tempfile.mkdtemp(dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
        configs: dict[str, dict[str, object]] = {
            "memory": {"kind": "memory", "name": f"machine-{next(_numbers)}"},
            "lmdb": {"kind": "lmdb", "path": self.folder + "/usual"},
            "lmdb in a map that grows": {"kind": "lmdb", "path": self.folder + "/small", "first_map_bytes": 1 << 16},
        }
        return {name: partial(Store.open, json.dumps(config)) for name, config in configs.items()}

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestEmbeddedStores = EmbeddedStores.TestCase
TestEmbeddedStores.settings = settings(
    max_examples=repetitions(40, 10_000),
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
