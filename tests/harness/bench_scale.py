"""Full counts for figures of record; PENSTOCK_BENCH_QUICK=1 gives small ones, to try a benchmark out."""

import os

IS_QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"


def count(full: int, *, quick: int) -> int:
    """How many."""
    return quick if IS_QUICK else full
