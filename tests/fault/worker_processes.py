"""Real worker processes on the parts of a test, and the faults that happen to them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select
from unit.jobs.stage import Stage

from harness.penstock_processes import start_worker
from harness.processes import Process
from harness.run import current_run
from penstock import _native
from penstock_server.domain.versions.publisher import parts_of
from penstock_server.jobs.leases import OPEN_SHARD_STATES
from penstock_server.manifests.families import FACTS
from penstock_server.manifests.parts import PartStore
from penstock_server.models import JobShard
from penstock_server.settings import Settings

Groups = dict[str, Any]


def production_groups(folder: Path, *, database: str, redis_url: str, contact_points: list[str]) -> dict[str, Any]:
    """PostgreSQL, Cassandra, and Celery on Redis."""
    return {
        "catalog": {"url": database},
        "store": {"kind": "cql", "contact_points": contact_points, "replication_factor": 1},
        "queue": {"kind": "celery", "redis_url": redis_url},
        "events": {"kind": "redis", "redis_url": redis_url},
        "ingest": {"allowed_roots": [str(folder)]},
    }


def settings_of(folder: Path, groups: Groups) -> Settings:
    return Settings(data_folder=folder / "data", state_folder=folder / "state", **groups)


def worker_settings(folder: Path, groups: Groups, **worker: float) -> dict[str, str]:
    """The same settings as variables, with options of the worker."""
    return {
        "PENSTOCK_DATA_FOLDER": str(folder / "data"),
        "PENSTOCK_STATE_FOLDER": str(folder / "state"),
        "PENSTOCK_LOG__LEVEL": "info",
        **{
            f"PENSTOCK_{group}__{key}".upper(): value if isinstance(value, str) else json.dumps(value)
            for group, members in groups.items()
            for key, value in members.items()
        },
        **{f"PENSTOCK_WORKER_{key}".upper(): str(value) for key, value in worker.items()},
    }


@contextmanager
def worker(folder: Path, groups: Groups, **options: float) -> Iterator[Process]:
    process = start_worker(current_run(), worker_settings(folder, groups, **options))
    try:
        yield process
    finally:
        process.stop()


def shards(stage: Stage) -> list[JobShard]:
    with stage.services.catalog.unit(is_read_only=True) as unit:
        return list(unit.session.scalars(select(JobShard).order_by(JobShard.job_id, JobShard.ordinal)))


def shard_in_work(stage: Stage, *, seconds: float = 180) -> JobShard:
    """A shard that somebody has begun and not ended."""
    found: list[JobShard] = []

    def look() -> bool:
        found[:] = [shard for shard in shards(stage) if shard.state == "leased" and shard.result is not None]
        return bool(found)

    # It may be in work for no more than a moment.
    stage.wait_until(look, seconds=seconds, what="a shard in work", every_seconds=0.02)
    return found[0]


def owner_pid(shard: JobShard) -> int:
    assert shard.lease_owner is not None
    return int(shard.lease_owner.split(":")[1])


def seconds_until_taken_over(stage: Stage, shard: JobShard, *, seconds: float) -> float:
    def is_taken() -> bool:
        now = next(each for each in shards(stage) if each.id == shard.id)
        return now.fence > shard.fence or now.state not in OPEN_SHARD_STATES

    return stage.wait_until(is_taken, seconds=seconds, what="the take-over")


def assert_whole(stage: Stage, folder: Path, *, count: int) -> None:
    """One version with every file once, each with its own bytes, and nothing else in the store."""
    (version,) = stage.versions()
    assert (version.state, version.sample_count) == ("published", count)
    parts = PartStore(stage.services.store, stage.project, dataset_id=stage.dataset_id)
    rows = [row for part in parts_of(version) for row in parts.table(part, FACTS).to_pylist()]
    root = folder.parent
    expected = {
        (path.parent.relative_to(root).as_posix(), path.name): _native.blake3(path.read_bytes())
        for path in folder.rglob("*.png")
    }
    assert len(rows) == len({row["id"] for row in rows}) == count
    assert {(row["source"], row["key"]): row["blake3:image"] for row in rows} == expected
    assert stage.stored_objects() == {row["object:image"] for row in rows}
    wanted = [(row["object:image"], "image", row["size:image"], row["xxh3:image"]) for row in rows]
    native = stage.services.store.native(stage.project)
    assert set(native.verify("samples", stage.dataset_id.bytes, wanted)) == {None}
