"""What every worker tidies up now and then; harmless when several do."""

import time

import structlog

from penstock_server.db import Catalog
from penstock_server.domain.loaders.service import forget_old_points

_log = structlog.get_logger(__name__)
_INTERVAL_SECONDS = 60.0


class Housekeeping:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next_at = 0.0

    def run_if_due(self) -> None:
        """Forget loaders' points older than an hour, once a minute."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + _INTERVAL_SECONDS
        with self._catalog.unit() as unit:
            forget_old_points(unit)
