"""Short forms in `make test`, full counts in `make soak`."""

import os

IS_SOAK = os.environ.get("PENSTOCK_SOAK") == "1"


def repetitions(short: int, full: int) -> int:
    """How often to repeat."""
    return full if IS_SOAK else short


def time_limit(short_seconds: float) -> float:
    """The limit of one test; a soak repeats it so often that only a hang should end it."""
    return max(short_seconds, 7200.0) if IS_SOAK else short_seconds
