import pickle
from typing import Any

import httpx
import pytest

from penstock import Client, _jobs
from penstock import _errors as errors

NOW = "2026-11-16T12:00:00Z"
DATASET = {
    "id": "00000000-0000-0000-0000-000000000001", "slug": "demo", "project": "default", "description": "",
    "schema": {"fields": [{"name": "image", "kind": "image"}],
               "columns": [{"name": "tumor", "kind": "category", "role": "label", "values": ["no", "yes"]},
                           {"name": "age", "kind": "int", "role": None, "values": None}]},
    "latest_version": 1, "default_split": "by-patient", "sample_count": 3, "byte_count": 30, "created_at": NOW,
    "updated_at": NOW, "cover_thumbnails": [], "something_newer": 1,
}  # fmt: skip
JOB = {"id": "job-1", "kind": "ingest", "dataset": "demo", "state": "queued", "created_at": NOW, "attempts": 0,
       "progress": {"done": 0, "total": None, "phase": "plan", "unit": "samples"}, "result": None, "error": None,
       "quarantined": [], "started_at": None, "ended_at": None, "created_by": "ann"}  # fmt: skip
SPLIT = {"id": "s", "dataset": "demo", "name": "by-patient", "number": 1, "version": 1, "digest": "b3:0", "recipe": {},
         "is_default": True, "report": {"shared_groups": 0}, "unused": 0, "created_at": NOW,
         "subsets": [{"name": "train", "count": 2, "digest": "b3:1", "groups": 2, "asked": 0.7, "achieved": 0.66,
                      "classes": {"yes": 1, "no": 1}}]}  # fmt: skip


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jobs, "_FIRST_POLL_SECONDS", 0.001)
    monkeypatch.setattr(_jobs, "_LAST_POLL_SECONDS", 0.002)


def test_listing_and_info(api: Any) -> None:
    api.answer("GET", "/datasets", {"items": [DATASET], "next_cursor": None})
    api.answer("GET", "/datasets/demo", DATASET)
    client = api.client()
    info = next(iter(client.datasets()))
    assert info == client.dataset("demo").info
    assert (info.slug, info.sample_count, info.created_at.isoformat()) == ("demo", 3, "2026-11-16T12:00:00+00:00")
    assert info.schema is not None
    assert info.schema.columns[0].values == ("no", "yes")


def test_answer_without_a_member_is_no_traceback(api: Any) -> None:
    api.answer("GET", "/datasets/demo", {key: value for key, value in DATASET.items() if key != "slug"})
    with pytest.raises(errors.TransportError, match="no DatasetInfo: slug is missing"):
        _ = api.client().dataset("demo").info
    api.answer("GET", "/datasets/demo", DATASET | {"sample_count": "3"})
    with pytest.raises(errors.TransportError, match="sample_count should be int, got str"):
        _ = api.client().dataset("demo").info


def test_ingest_sends_an_absolute_path_and_the_columns(
    api: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answer("POST", "/datasets/demo/ingests", JOB, 202)
    monkeypatch.chdir(tmp_path)
    job = (
        api.client().dataset("demo").ingest("a/../slides", label="tumor", group="patient", sidecar="m.csv", source="s")
    )
    assert (job.id, job.state) == ("job-1", "queued")
    assert api.bodies("POST", "/datasets/demo/ingests") == [
        {"source": {"kind": "folder", "path": str(tmp_path / "slides"), "name": "s"}, "label": "tumor",
         "group": "patient", "sidecar": "m.csv"}
    ]  # fmt: skip


def test_ingest_makes_a_missing_dataset(api: Any) -> None:
    def ingest(request: httpx.Request) -> httpx.Response:
        if not api.bodies("POST", "/datasets"):
            return httpx.Response(404, json={"code": "dataset.not_found", "detail": "no dataset 'demo'"})
        return httpx.Response(202, json=JOB)

    api.serve("POST", "/datasets/demo/ingests", ingest)
    api.answer("POST", "/datasets", DATASET, 201)
    with pytest.raises(errors.NotFound):
        api.client().dataset("demo").ingest("/x", create=False)
    assert api.client().dataset("demo").ingest("/x").id == "job-1"
    assert api.bodies("POST", "/datasets") == [{"name": "demo"}]


def running(*states: dict[str, Any]) -> Any:
    left = list(states)
    return lambda request: httpx.Response(200, json=JOB | (left.pop(0) if len(left) > 1 else left[0]))


def test_wait_until_it_succeeded(api: Any) -> None:
    api.answer("GET", "/jobs/job-1", JOB)
    job = api.client().job("job-1")
    done = {"state": "succeeded", "result": {"version": 1, "sample_count": 3, "quarantined_count": 0}}
    api.serve("GET", "/jobs/job-1", running({"state": "running"}, {"state": "running"}, done))
    seen: list[str] = []
    assert job.wait(progress=False, on_change=lambda info: seen.append(info.state)).result["version"] == 1
    assert seen == ["running", "succeeded"]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_wait_raises_when_it_did_not(api: Any, state: str) -> None:
    error = {"code": "ingest.folder_empty", "detail": "no pictures"} if state == "failed" else None
    api.answer("GET", "/jobs/job-1", JOB | {"state": state, "error": error})
    with pytest.raises(errors.JobFailed, match=state) as caught:
        api.client().job("job-1").wait(progress=False)
    assert caught.value.code == ("ingest.folder_empty" if error else None)


def test_wait_gives_up_and_says_that_the_job_goes_on(api: Any) -> None:
    api.answer("GET", "/jobs/job-1", JOB | {"state": "running"})
    with pytest.raises(errors.Timeout, match="still running"):
        api.client().job("job-1").wait(0.02, progress=False)


def test_progress_bar_is_drawn_on_demand(api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    progress = {"done": 50, "total": 100, "phase": "write", "unit": "samples"}
    api.serve("GET", "/jobs/job-1", running({"state": "running", "progress": progress}, {"state": "succeeded"}))
    api.client().job("job-1").wait(progress=True)
    drawn = capsys.readouterr().err
    assert "write    [###############               ] 50/100 samples" in drawn
    assert drawn.endswith("\n")


def test_split_recipe(api: Any) -> None:
    api.answer("POST", "/datasets/demo/splits", SPLIT, 201)
    split = (
        api.client()
        .dataset("demo")
        .split("by-patient", {"train": 0.8, "val": 500}, group_by="patient", stratify_by="tumor", seed=7, version=1)
    )
    assert split.subsets[0].classes == {"yes": 1, "no": 1}
    recipe = {"format": 1, "subsets": [{"name": "train", "ratio": 0.8}, {"name": "val", "count": 500}],
              "group_by": "patient", "stratify_by": ["tumor"], "filter": None, "seed": 7}  # fmt: skip
    assert api.bodies("POST", "/datasets/demo/splits") == [{"name": "by-patient", "recipe": recipe, "version": 1}]
    with pytest.raises(errors.ConfigError, match="at least one subset"):
        api.client().dataset("demo").split("x", {})


def test_samples_are_an_arrow_table_of_one_version(api: Any) -> None:
    version = {"id": "v", "dataset": "demo", "number": 4, "digest": "b3:0", "sample_count": 3, "byte_count": 30,
               "parent": None, "created_at": NOW, "job_id": None, "schema": DATASET["schema"],
               "quarantined_count": 0}  # fmt: skip
    api.answer("GET", "/datasets/demo/versions/latest", version)

    def samples(request: httpx.Request) -> httpx.Response:
        assert request.url.params["filter"] == "age > 0"
        start = int(request.url.params.get("cursor", 0))
        count = min(2, int(request.url.params["limit"]))
        items = [
            {"id": f"id-{row}", "source": "s", "key": f"{row}.png", "row": row, "label": "yes",
             "metadata": {"tumor": "yes", "age": row}, "fields": [{"name": "image", "kind": "image", "size": 9}]}
            for row in range(start, min(start + count, 3))
        ]  # fmt: skip
        following = str(start + count) if start + count < 3 else None
        return httpx.Response(200, json={"items": items, "next_cursor": following, "total": 3})

    api.serve("GET", "/datasets/demo/versions/4/samples", samples)
    table = api.client().dataset("demo").samples("age > 0")
    assert table.column_names == ["id", "source", "key", "row", "tumor", "age", "image_bytes"]
    assert table["age"].to_pylist() == [0, 1, 2]
    assert api.client().dataset("demo").samples("age > 0", limit=1).num_rows == 1


@pytest.mark.parametrize("name", ["Demo", "a b", "", "demo@x", "../etc"])
def test_wrong_names_never_reach_the_server(api: Any, name: str) -> None:
    with pytest.raises(errors.ConfigError):
        api.client().dataset(name)
    with pytest.raises(errors.ConfigError):
        api.client().loader("demo", split=name or " ")
    assert api.requests == []


def test_no_dataset_named(api: Any) -> None:
    with pytest.raises(errors.ConfigError, match="PENSTOCK_DATASET"):
        api.client().loader(split="train")


def test_token_secret_is_shown_once_and_not_in_repr(api: Any) -> None:
    token = {"id": "t", "name": "ci", "prefix": "pst_ab", "created_at": NOW, "last_used_at": None, "expires_at": None}
    api.answer("POST", "/tokens", token | {"secret": "pst_abcdef"}, 201)
    made = api.client().create_token("ci", expires_in_days=3)
    assert made.secret == "pst_abcdef"
    assert "pst_abcdef" not in repr(made)
    assert api.bodies("POST", "/tokens") == [{"name": "ci", "expires_in_days": 3}]


def test_client_without_its_token_in_text_and_pickle(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = api.client(dataset="demo", timeout_seconds=7.0)
    frozen = pickle.dumps(client)
    assert b"pst_secret" not in frozen
    assert "pst_secret" not in repr(client) + str(vars(client))
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_other")
    again = pickle.loads(frozen)
    assert isinstance(again, Client)
    assert again.base_url == "http://127.0.0.1:9"
    assert again._transport.config.token == "pst_other"
    assert again._transport.config.dataset == "demo"
    assert again._transport._timeout_seconds == 7.0


def test_store_password_of_a_plan_is_not_in_its_text(api: Any, training: Any) -> None:
    config = {"kind": "cql", "password": "hunter2"}
    store = {"reach": "direct", "config": config, "host": None, "reason": None}
    api.answer("POST", "/loaders/resolve", training.plan(store=store))
    assert "hunter2" not in repr(api.client().resolve("demo", split="train"))
