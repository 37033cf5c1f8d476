"""Short forms in `make test`, full counts in `make soak`."""

import os

IS_SOAK = os.environ.get("PENSTOCK_SOAK") == "1"


def repetitions(short: int, full: int) -> int:
    """How often to repeat."""
    return full if IS_SOAK else short
