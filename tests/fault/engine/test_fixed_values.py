"""What is found by itself can be fixed, and `stats` shows what is in force."""

import pytest
from fault.engine.life_on_ring import LifeOnRing
from fault.loader_workers import COUNT, valid_ids

from harness.cassandra.cluster import CassandraCluster


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_FOLDER", str(tmp_path_factory.mktemp("cache")))


def test_lanes_window_and_budget_are_what_the_user_says(life: LifeOnRing, cassandra_ring: CassandraCluster) -> None:
    nodes = len(cassandra_ring.nodes)
    fixed = {"window_bytes": 123_456, "prefetch_bytes": 1 << 20}
    # Loaders share a store, but not one with another number of connections.
    with life.loader(lanes=2, **fixed) as two, life.loader(lanes=3, **fixed) as three, life.loader(lanes=2) as again:
        for loader, lanes in ((two, 2), (three, 3), (again, 2)):
            assert sum(len(valid_ids(batch)) for batch in loader) == COUNT
            assert loader.stats()["engine"]["lanes"] == lanes * nodes
        for loader in (two, three):
            stats = loader.stats()
            assert (stats["prefetch_bytes"], stats["engine"]["window_bytes"]) == (1 << 20, 123_456)
