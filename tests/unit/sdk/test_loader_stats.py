"""What a loader tells of itself stands in docs/stats.md, and nothing else."""

from typing import Any

from unit.native.test_stats_document import documented
from unit.sdk.loading import loader_of


def test_the_document_has_every_key_of_a_loader_and_no_other(training: Any) -> None:
    with loader_of(training) as loader:
        next(iter(loader))
        stats = loader.stats()
        assert documented("Loader") == [set(stats)]
        assert stats["prefetch_bytes"] == stats["engine"]["prefetch_bytes"]
    assert loader.stats()["engine"] == {}
