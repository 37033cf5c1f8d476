import os
from pathlib import Path
from uuid import UUID

import pytest
from PIL import Image
from sqlalchemy import select
from unit.jobs.lease_cases import expire
from unit.jobs.stage import Stage, embedded_settings, open_stage, write_pictures

from penstock.contract.ids import own_object_id
from penstock.contract.records import OWN_STAGED, OWN_THUMBNAIL
from penstock_server.domain.datasets.service import schema_of
from penstock_server.domain.jobs.service import JobService
from penstock_server.jobs.leases import LeaseLost
from penstock_server.models import Dataset, JobShard, User
from penstock_server.store import ObjectMissing
from penstock_workers.readers.files import FolderSource
from penstock_workers.tasks import planning


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    write_pictures(folder, 12)
    return folder


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SHARD_SAMPLES", 5)


def test_folder_becomes_a_published_version(stage: Stage, folder: Path) -> None:
    job = stage.finished(folder)
    assert (job.state, job.error, job.attempts) == ("succeeded", None, 1)
    assert job.result is not None
    assert (job.result.version, job.result.sample_count, job.result.quarantined_count) == (1, 12, 0)
    assert (job.progress.done, job.progress.total, job.progress.phase) == (12, 12, "publish")
    assert job.started_at is not None
    assert job.ended_at is not None
    (version,) = stage.versions()
    assert (version.state, version.sample_count, version.job_id) == ("published", 12, job.id)
    assert len(stage.stored_objects()) == 12
    with stage.services.catalog.unit(is_read_only=True) as unit:
        schema = schema_of(unit.session.get_one(Dataset, stage.dataset_id))
    assert schema.label is not None
    assert (schema.label.name, schema.label.values) == ("label", ["cat", "dog"])


def test_staged_tables_are_gone_and_thumbnails_are_there(stage: Stage, folder: Path) -> None:
    job = stage.finished(folder)
    with stage.services.catalog.unit(is_read_only=True) as unit:
        shards = unit.session.scalars(select(JobShard).where(JobShard.job_id == job.id)).all()
    assert len(shards) == 3
    store, project = stage.services.store, stage.project
    for shard in shards:
        assert shard.result is not None
        name = f"{job.id.hex}/{shard.ordinal}/{shard.fence}"
        assert UUID(shard.result["staged"]) == own_object_id(stage.dataset_id, OWN_STAGED, name)
        with pytest.raises(ObjectMissing):
            store.get_own(project, stage.dataset_id, UUID(shard.result["staged"]))
    native = store.native(project)
    shown = [own_object_id(stage.dataset_id, OWN_THUMBNAIL, sample.hex) for sample in stage.sample_ids()]
    found = native.read("objects", stage.dataset_id.bytes, [each.bytes for each in shown])
    assert all(each is not None and each["data"][8:12] == b"WEBP" for each in found)


def test_same_source_twice_gives_no_new_sample_and_no_new_version(stage: Stage, folder: Path) -> None:
    first = stage.finished(folder)
    objects, samples = stage.stored_objects(), stage.sample_ids()
    second = stage.finished(folder)
    assert second.state == "succeeded"
    assert first.result == second.result
    assert stage.stored_objects() == objects
    assert stage.sample_ids() == samples
    assert len(stage.versions()) == 1


def test_changed_file_is_a_new_version_and_the_old_one_stays(stage: Stage, folder: Path) -> None:
    stage.finished(folder)
    before = stage.stored_objects()
    Image.new("RGB", (9, 9), "red").save(folder / "cat" / "00000.png")
    write_pictures(folder, 14)
    Image.new("RGB", (9, 9), "red").save(folder / "cat" / "00000.png")
    job = stage.finished(folder)
    assert job.result is not None
    assert (job.result.version, job.result.sample_count) == (2, 14)
    assert before < stage.stored_objects()
    assert [version.sample_count for version in stage.versions()] == [12, 14]


def test_new_category_is_appended_and_keeps_the_old_codes(stage: Stage, folder: Path) -> None:
    stage.finished(folder)
    write_pictures(folder, 3, classes=("ant",))
    assert stage.finished(folder).state == "succeeded"
    with stage.services.catalog.unit(is_read_only=True) as unit:
        label = schema_of(unit.session.get_one(Dataset, stage.dataset_id)).label
    assert label is not None
    assert label.values == ["cat", "dog", "ant"]


def test_bad_files_are_quarantined_with_a_reason_and_the_rest_goes_on(stage: Stage, folder: Path) -> None:
    write_pictures(folder, 40)
    (folder / "cat" / "empty.png").write_bytes(b"")
    whole = (folder / "cat" / "00000.png").read_bytes()
    (folder / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "readme.txt").write_text("not a picture")
    (folder / "dog" / "out.png").symlink_to("/etc/hostname")
    job = stage.finished(folder)
    assert job.state == "succeeded"
    assert job.result is not None
    assert (job.result.sample_count, job.result.quarantined_count) == (40, 4)
    reasons = {each.key: each.reason for each in job.quarantined}
    assert reasons["cat/empty.png"] == "the file is empty"
    assert reasons["cat/cut.png"].startswith("the picture is damaged")
    assert reasons["dog/readme.txt"].startswith("not a picture")
    assert reasons["dog/out.png"] == "a link that leads out of the folder"
    assert stage.versions()[0].quarantined_count == 4


def test_too_many_bad_files_fail_the_job_and_publish_nothing(stage: Stage, folder: Path) -> None:
    for number in range(9):
        (folder / "cat" / f"bad{number}.png").write_bytes(b"broken")
    job = stage.finished(folder)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.code == "ingest.too_many_bad"
    assert "9 of 21 files cannot be used, more than the allowed 10%" in job.error.detail
    assert "Nothing was published" in job.error.detail
    assert job.quarantined
    assert stage.versions() == []


@pytest.mark.parametrize(("good_count", "bad_count"), [(8, 1), (1, 8)])
def test_few_bad_files_pass_in_a_small_folder(stage: Stage, tmp_path: Path, good_count: int, bad_count: int) -> None:
    folder = tmp_path / "small"
    write_pictures(folder, good_count)
    for number in range(bad_count):
        (folder / "cat" / f"bad{number}.png").write_bytes(b"broken")
    job = stage.finished(folder)
    assert (job.state, job.error) == ("succeeded", None)
    assert job.result is not None
    assert (job.result.sample_count, job.result.quarantined_count) == (good_count, bad_count)


def test_bad_files_without_a_good_one_fail_the_job(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    (folder / "cat").mkdir(parents=True)
    for number in range(2):
        (folder / "cat" / f"bad{number}.png").write_bytes(b"broken")
    job = stage.finished(folder)
    assert job.error is not None
    assert job.error.code == "ingest.too_many_bad"
    assert "none of the 2 files can be used" in job.error.detail
    assert stage.versions() == []


@pytest.mark.parametrize(("share", "bad_count", "state"), [(0.5, 9, "succeeded"), (0, 1, "failed")])
def test_share_of_bad_files_is_a_setting(
    tmp_path: Path, folder: Path, share: float, bad_count: int, state: str
) -> None:
    ingest = {"max_bad_share": share, "allowed_roots": [folder]}
    stage = open_stage(embedded_settings(tmp_path / "other", ingest=ingest))
    for number in range(bad_count):
        (folder / "cat" / f"bad{number}.png").write_bytes(b"broken")
    job = stage.finished(folder)
    stage.services.close()
    assert job.state == state
    assert len(job.quarantined) == bad_count


def test_folder_without_any_picture_fails(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    job = stage.finished(folder)
    assert job.error is not None
    assert job.error.code == "ingest.too_many_bad"


def test_folder_that_went_away_before_the_plan_fails_with_its_code(stage: Stage, folder: Path) -> None:
    job_id = stage.ingest(folder)
    folder.rename(folder.with_name("moved"))
    stage.run_all()
    job = stage.job(job_id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.code == "ingest.folder_not_found"


def test_files_that_went_away_after_the_plan_are_quarantined(stage: Stage, folder: Path) -> None:
    job_id = stage.ingest(folder)
    runner = stage.runner()
    assert runner.run_one()
    (folder / "cat" / "00000.png").unlink()
    stage.run_all()
    job = stage.job(job_id)
    assert [(each.key, each.reason) for each in job.quarantined] == [
        ("cat/00000.png", "the file 'cat/00000.png' does not exist")
    ]
    assert job.state == "succeeded"


def test_sidecar_brings_masks_and_typed_metadata(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    write_pictures(folder, 6, classes=("p",))
    write_pictures(folder, 6, classes=("m",), side=8)
    lines = [f"p/{n:05d}.png,m/{n:05d}.png,{'yes' if n % 3 else 'no'},p{n // 2},{30 + n}" for n in range(6)]
    (folder / "metadata.csv").write_text("image,mask,tumor,patient,age\n" + "\n".join(lines) + "\n")
    job = stage.finished(folder, label="tumor", group="patient")
    assert job.state == "succeeded"
    (version,) = stage.versions()
    names = [field["name"] for field in version.schema["fields"]]
    assert names == ["image", "mask"]
    assert {column["name"]: column["kind"] for column in version.schema["columns"]} == {
        "tumor": "category", "patient": "category", "age": "int"
    }  # fmt: skip
    assert len(stage.stored_objects()) == 6


def test_worker_that_lost_its_shard_leaves_the_successors_result_alone(stage: Stage, folder: Path) -> None:
    """Two workers on one shard, the first frozen before it could record; a file has changed in between."""
    job_id = stage.ingest(folder)
    first, second = stage.runner(), stage.runner()
    assert first.run_one()
    lost = first.leases.claim_shard("frozen")
    assert lost is not None
    expire(stage.services.catalog)
    while second.run_one():
        pass
    done = stage.job(job_id)
    objects, digest = stage.stored_objects(), stage.versions()[0].digest
    with pytest.raises(LeaseLost):
        first.leases.complete_shard(lost, {"done": 5, "sample_count": 0, "staged": str(job_id)})
    assert stage.job(job_id) == done
    assert done.state == "succeeded"
    assert stage.stored_objects() == objects
    assert [version.digest for version in stage.versions()] == [digest]


def test_cancelled_job_publishes_nothing(stage: Stage, folder: Path) -> None:
    job_id = stage.ingest(folder)
    runner = stage.runner()
    assert runner.run_one()
    assert runner.run_one()
    with stage.services.catalog.unit() as unit:
        JobService(unit, stage.services.queue, stage.services.bus).cancel(stage.actor, job_id)
    stage.run_all()
    assert stage.job(job_id).state == "cancelled"
    assert stage.versions() == []


def test_job_of_a_user_who_is_gone_does_not_run(stage: Stage, folder: Path) -> None:
    job_id = stage.ingest(folder)
    with stage.services.catalog.unit() as unit:
        unit.session.delete(unit.session.get_one(User, stage.actor.user_id))
    stage.run_all()
    with stage.services.catalog.unit(is_read_only=True) as unit:
        job = JobService(unit, stage.services.queue, stage.services.bus).get(stage.actor, job_id)
    assert job.error is not None
    assert job.error.code == "auth.forbidden"


def test_secrets_of_the_machine_stay_out_of_the_source_names(stage: Stage, folder: Path) -> None:
    stage.finished(folder)
    with stage.services.catalog.unit(is_read_only=True) as unit:
        shards = unit.session.scalars(select(JobShard)).all()
    for shard in shards:
        for source, _, paths, _ in shard.payload["rows"]:
            assert not any(os.path.isabs(path) for path in [source, *paths])


def test_folder_with_system_files_only_fails_instead_of_planning_for_ever(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    folder.mkdir()
    (folder / "Thumbs.db").write_bytes(b"x")
    job = stage.finished(folder)
    assert job.error is not None
    assert (job.state, job.error.code) == ("failed", "ingest.folder_empty")


def test_batches_are_bounded_by_samples_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BATCH_SAMPLES", 3)
    monkeypatch.setattr(planning, "BATCH_BYTES", 100)
    sizes = [10, 10, 10, 10, 500, 60, 60, 0]
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}").write_bytes(b"x" * size)
    rows = [["s", str(number), [str(number)], []] for number in range(len(sizes))]
    batches = planning.cut_batches([*rows, ["s", "gone", ["gone"], []]], FolderSource(tmp_path, "s"))
    assert [[row[1] for row in batch] for batch in batches] == [
        ["0", "1", "2"], ["3"], ["4"], ["5"], ["6", "7", "gone"]
    ]  # fmt: skip
