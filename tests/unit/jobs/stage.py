"""A whole server's parts for a test, without HTTP: catalog, store, queue, a user and a dataset."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from PIL import Image

from penstock.contract.records import SAMPLES_TABLE
from penstock_server.composition import Services, build_services
from penstock_server.db.migrations import migrate
from penstock_server.domain.datasets.schemas import DatasetCreate
from penstock_server.domain.datasets.service import DatasetService
from penstock_server.domain.jobs.schemas import IngestCreate, JobRead
from penstock_server.domain.jobs.service import JobService
from penstock_server.domain.projects.service import ProjectService
from penstock_server.domain.users.service import UserService
from penstock_server.domain.versions.publisher import parts_of
from penstock_server.manifests.families import FACTS
from penstock_server.manifests.parts import PartStore
from penstock_server.models import Project, Version
from penstock_server.policy import Actor
from penstock_server.settings import Settings
from penstock_workers.runner import Runner
from penstock_workers.tasks import job_tasks

DATASET = "patches"


@dataclass
class Stage:
    """What a test needs of a server, and shortcuts for what it does with it."""

    settings: Settings
    services: Services
    actor: Actor
    dataset_id: UUID
    project_id: UUID

    def ingest(self, folder: Path, **options: Any) -> UUID:
        """Ask for an ingest of `folder`."""
        source = {"path": str(folder), "name": options.pop("name", None)}
        with self.services.catalog.unit() as unit:
            jobs = JobService(unit, self.services.queue, self.services.bus)
            return jobs.create_ingest(
                self.actor,
                IngestCreate.model_validate({"source": source, **options}),
                dataset_id=self.dataset_id,
                project_id=self.project_id,
                allowed_roots=self.settings.ingest.allowed_roots,
            ).id

    def job(self, job_id: UUID) -> JobRead:
        with self.services.catalog.unit(is_read_only=True) as unit:
            return JobService(unit, self.services.queue, self.services.bus).get(self.actor, job_id)

    def runner(self, *, lease_seconds: float = 20.0) -> Runner:
        return Runner(self.services, job_tasks(), lease_seconds=lease_seconds)

    def run_all(self) -> None:
        """Work in this process until there is nothing left to claim."""
        runner = self.runner()
        while runner.run_one():
            pass

    def finished(self, folder: Path, **options: Any) -> JobRead:
        job_id = self.ingest(folder, **options)
        self.run_all()
        return self.job(job_id)

    def versions(self) -> list[Version]:
        with self.services.catalog.unit(is_read_only=True) as unit:
            return list(unit.session.query(Version).filter_by(dataset_id=self.dataset_id).order_by(Version.number))

    @property
    def project(self) -> Project:
        with self.services.catalog.unit(is_read_only=True) as unit:
            return unit.session.get_one(Project, self.project_id)

    def sample_ids(self) -> list[UUID]:
        """Samples of the latest version, in manifest order, as its own parts in the store say."""
        version = self.versions()[-1]
        parts = PartStore(self.services.store, self.project, dataset_id=self.dataset_id)
        found: list[UUID] = []
        for part in parts_of(version):
            ids = parts.table(part, FACTS).column("id").to_pylist()
            found += [UUID(bytes=each) for each, is_live in zip(ids, parts.live(part), strict=True) if is_live]
        return found

    def stored_objects(self) -> set[bytes]:
        """Ids of all objects that hold samples' bytes."""
        return set(self.services.store.native(self.project).scan(SAMPLES_TABLE, self.dataset_id.bytes))

    def wait_until(
        self, condition: Callable[[], bool], *, seconds: float, what: str, every_seconds: float = 0.1
    ) -> float:
        """Seconds until `condition` held. Most conditions ask a database or a server, which has other work to do."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > seconds:
                raise AssertionError(f"{what}: not within {seconds} s")
            time.sleep(every_seconds)
        return time.monotonic() - started

    def wait_for_end(self, job_id: UUID, *, seconds: float = 60) -> JobRead:
        self.wait_until(lambda: self.job(job_id).ended_at is not None, seconds=seconds, what="the job's end")
        return self.job(job_id)


def open_stage(settings: Settings) -> Stage:
    """Migrate the catalog and make the default project, the administrator and an empty dataset."""
    services = build_services(settings)
    migrate(services.catalog)
    with services.catalog.unit() as unit:
        project = ProjectService(unit).ensure_default()
        user = UserService(unit).ensure_admin()
        actor = Actor(user.id, "admin")
        dataset = DatasetService(unit, services.store, services.bus).create(DatasetCreate(name=DATASET), actor=actor)
    return Stage(settings, services, actor, dataset.id, project.id)


def embedded_settings(folder: Path, **groups: Any) -> Settings:
    """SQLite, LMDB and a local queue below `folder`; sources may lie there too."""
    ingest = {"allowed_roots": [str(folder)], **groups.pop("ingest", {})}
    return Settings(data_folder=folder / "data", state_folder=folder / "state", ingest=ingest, **groups)


def write_pictures(folder: Path, count: int, *, classes: tuple[str, ...] = ("cat", "dog"), side: int = 16) -> None:
    """`count` different PNG pictures, one folder a class."""
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = np.random.Generator(np.random.PCG64(number)).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / classes[number % len(classes)] / f"{number:05d}.png")
