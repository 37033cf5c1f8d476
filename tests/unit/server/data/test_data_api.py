"""The routes of datasets, versions, samples and splits, on a whole server with SQLite and LMDB."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pyarrow as pa
import pytest
from unit.server.data.builders import (
    SCHEMA,
    Item,
    Parts,
    embedded_settings,
    items,
    prepare,
    staged,
    store_bytes,
)

from penstock_server.app import create_app
from penstock_server.commands.catalog_start import ensure_first_rows
from penstock_server.composition import build_services
from penstock_server.db.migrations import migrate
from penstock_server.domain.versions.service import VersionService
from penstock_server.serving import HttpServer

RECIPE = {"subsets": [{"name": "train", "ratio": 0.7}, {"name": "val", "ratio": 0.3}], "group_by": "patient", "seed": 7}


class Api:
    """A client with an administrator's token, and a way to publish without a worker."""

    def __init__(self, client: httpx.Client, parts: Parts, address: str) -> None:
        self.client = client
        self.parts = parts
        self.address = address

    def publish(self, dataset: str, rows: list[Item], *, parent: int | None = None) -> None:
        dataset_id = UUID(self.client.get(f"/datasets/{dataset}").json()["id"])
        store_bytes(self.parts, dataset_id, rows)
        prepared = prepare(self.parts, dataset_id, [staged(dataset_id, rows)], parent=parent)
        with self.parts.catalog.unit() as unit:
            VersionService(unit, self.parts.store, self.parts.bus).publish(prepared, fence_check=lambda _: None)

    def get(self, path: str, **parameters: object) -> httpx.Response:
        return self.client.get(path, params={name: str(value) for name, value in parameters.items()})


@contextmanager
def served(folder: Path) -> Iterator[Api]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings = embedded_settings(folder)
    services = build_services(settings)
    migrate(services.catalog)
    rows = ensure_first_rows(services.catalog, code_minutes=10)
    app = create_app(settings, services=services)
    started = threading.Event()
    http = HttpServer(app, settings.server, on_started=started.set, on_stopping=lambda: None)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert started.wait(20)
    headers = {"Authorization": f"Bearer {rows.token}"}
    with httpx.Client(base_url=f"{address}/api/v1", headers=headers, timeout=20) as client:
        yield Api(client, Parts(settings, services.catalog, services.store, services.bus), address)
    http.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def _with_demo(api: Api) -> Api:
    api.client.post("/datasets", json={"name": "demo", "schema": SCHEMA.model_dump(mode="json")})
    api.publish("demo", items(60))
    return api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with served(tmp_path) as api:
        yield api


@pytest.fixture
def fresh(api: Api) -> Api:
    """A demo dataset of its own, for tests that change it."""
    return _with_demo(api)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One demo dataset for all tests that only look."""
    with served(tmp_path_factory.mktemp("demo")) as api:
        yield _with_demo(api)


def _code(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


class TestDatasets:
    def test_create_read_and_list(self, api: Api) -> None:
        made = api.client.post("/datasets", json={"name": "patches", "description": "of 300 patients"})
        assert made.status_code == 201
        assert made.headers["location"] == f"/api/v1/datasets/{made.json()['id']}"
        body = made.json()
        assert body["schema"] == {"fields": [], "columns": []}
        assert (body["latest_version"], body["default_split"], body["sample_count"]) == (None, None, 0)
        assert api.get("/datasets/patches").json() == body
        assert api.get(f"/datasets/{body['id']}").json() == body
        assert api.get("/datasets", query="300").json()["items"] == [body]
        assert api.get("/datasets", query="3%0").json()["items"] == []

    def test_lists_are_paged_both_ways(self, api: Api) -> None:
        for name in "cabde":
            api.client.post("/datasets", json={"name": name})
        first = api.get("/datasets", limit=2).json()
        second = api.get("/datasets", limit=2, cursor=first["next_cursor"]).json()
        back = api.get("/datasets", limit=2, cursor=second["prev_cursor"]).json()
        assert [item["slug"] for item in first["items"] + second["items"]] == ["a", "b", "c", "d"]
        assert [item["slug"] for item in back["items"]] == ["a", "b"]
        assert _code(api.get("/datasets", cursor="nonsense")) == (422, "request.invalid")
        assert _code(api.get("/datasets", query="x", cursor=first["next_cursor"])) == (422, "request.invalid")

    @pytest.mark.parametrize(
        "body",
        [
            {"name": "Bad Name"},
            {"name": "a/b"},
            {"name": "x" * 70},
            {"name": "ok", "extra": 1},
            {"name": "ok", "description": "nul \x00"},
            {"name": "ok", "schema": {"fields": [{"name": "image", "kind": "video"}]}},
            {"name": "ok", "schema": {"fields": [{"name": "ids", "kind": "image"}]}},
            {"name": "ok", "schema": {"columns": [{"name": "a b", "kind": "int"}]}},
            {"name": "ok", "schema": {"columns": [{"name": "a", "kind": "int", "values": ["x"]}]}},
            {"name": "ok", "schema": {"columns": [{"name": "a", "kind": "int"}, {"name": "a", "kind": "int"}]}},
        ],
    )
    def test_wrong_bodies_are_refused(self, api: Api, body: dict[str, object]) -> None:
        assert _code(api.client.post("/datasets", json=body)) == (422, "request.invalid")

    def test_name_taken_unknown_project_and_unknown_dataset(self, api: Api) -> None:
        api.client.post("/datasets", json={"name": "demo"})
        assert _code(api.client.post("/datasets", json={"name": "demo"})) == (409, "dataset.exists")
        other = api.client.post("/datasets", json={"name": "demo", "project": "other"})
        assert _code(other) == (404, "project.not_found")
        for name in ("nope", "%00", "a%20b", "x" * 300):
            assert _code(api.get(f"/datasets/{name}")) == (404, "dataset.not_found")
        assert _code(api.get("/datasets", query="\x00")) == (422, "request.invalid")
        assert _code(api.get("/datasets/demo/versions/latest")) == (404, "dataset.no_version")

    def test_idempotency_key_gives_the_first_answer(self, api: Api) -> None:
        headers = {"Idempotency-Key": "k1"}
        first = api.client.post("/datasets", json={"name": "demo", "schema": SCHEMA.model_dump()}, headers=headers)
        again = api.client.post("/datasets", json={"name": "demo", "schema": SCHEMA.model_dump()}, headers=headers)
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        other = api.client.post("/datasets", json={"name": "other"}, headers=headers)
        assert _code(other) == (409, "request.idempotency_conflict")

    def test_change_needs_the_etag_that_was_read(self, api: Api) -> None:
        api.client.post("/datasets", json={"name": "demo"})
        etag = api.get("/datasets/demo").headers["etag"]
        change = {"description": "new"}
        assert _code(api.client.patch("/datasets/demo", json=change)) == (428, "request.precondition_required")
        changed = api.client.patch("/datasets/demo", json=change, headers={"If-Match": etag})
        assert changed.status_code == 200
        assert changed.json()["description"] == "new"
        assert changed.headers["etag"] != etag
        stale = api.client.patch("/datasets/demo", json=change, headers={"If-Match": etag})
        assert _code(stale) == (412, "request.precondition_failed")


class TestSamples:
    def test_dataset_and_version_show_what_was_published(self, demo: Api) -> None:
        dataset = demo.get("/datasets/demo").json()
        version = demo.get("/datasets/demo/versions/latest").json()
        assert (dataset["latest_version"], dataset["sample_count"]) == (1, 60)
        assert version == demo.get("/datasets/demo/versions/1").json()
        assert demo.get("/datasets/demo/versions").json()["items"] == [version]
        assert version["dataset"] == "demo"
        assert dataset["byte_count"] == version["byte_count"]
        assert len(dataset["cover_thumbnails"]) == 4
        picture = demo.client.get(f"{demo.address}{dataset['cover_thumbnails'][0]}")
        assert picture.headers["content-type"] == "image/webp"

    def test_list_filter_order_and_jump(self, demo: Api) -> None:
        base = "/datasets/demo/versions/1/samples"
        page = demo.get(base, filter="tumor = 'yes'", order="plan", limit=5).json()
        assert page["total"] == 15
        assert [item["label"] for item in page["items"]] == ["yes"] * 5
        following = demo.get(base, filter="tumor = 'yes'", order="plan", limit=5, cursor=page["next_cursor"]).json()
        jumped = demo.get(base, filter="tumor = 'yes'", order="plan", limit=5, offset=5).json()
        assert following["items"] == jumped["items"]
        assert page["items"][0]["metadata"]["taken"].endswith("Z")

    @pytest.mark.parametrize(
        ("parameters", "code"),
        [
            ({"filter": "nope = 1"}, "filter.invalid"),
            ({"filter": "x" * 8193}, "request.invalid"),
            ({"order": "nope"}, "request.invalid"),
            ({"limit": 0}, "request.invalid"),
            ({"limit": 501}, "request.invalid"),
            ({"offset": -1}, "request.invalid"),
            ({"seed": -1}, "request.invalid"),
            ({"cursor": "abc"}, "request.invalid"),
        ],
    )
    def test_wrong_queries_are_refused(self, demo: Api, parameters: dict[str, object], code: str) -> None:
        assert _code(demo.get("/datasets/demo/versions/1/samples", **parameters)) == (422, code)

    def test_facets(self, demo: Api) -> None:
        answer = demo.get("/datasets/demo/versions/latest/facets", columns="tumor, age", filter="checked").json()
        assert answer["total"] == sum(item.checked is True for item in items(60))
        assert [facet["column"] for facet in answer["facets"]] == ["tumor", "age"]
        assert sum(value["count"] for value in answer["facets"][0]["values"]) == answer["total"]

    def test_bytes_are_served_as_untrusted(self, demo: Api) -> None:
        sample = demo.get("/datasets/demo/versions/1/samples", filter="key = '00007.png'").json()["items"][0]
        detail = demo.get(f"/datasets/demo/versions/1/samples/{sample['id']}").json()
        picture, note = (demo.client.get(f"{demo.address}{field['url']}") for field in detail["fields"])
        assert picture.content == items(60)[7].image
        assert picture.headers["content-type"] == "image/png"
        assert "content-disposition" not in picture.headers
        assert note.headers["content-type"] == "application/octet-stream"
        assert note.headers["content-disposition"].startswith("attachment")
        thumbnail = demo.get(f"/datasets/demo/versions/1/samples/{sample['id']}/thumbnail")
        assert thumbnail.headers["cache-control"] == "private, max-age=86400, immutable"
        for response in (picture, note, thumbnail):
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in response.headers["content-security-policy"]

    def test_unknown_things_are_named(self, demo: Api) -> None:
        base = "/datasets/demo/versions/1/samples"
        sample = demo.get(base, limit=1).json()["items"][0]["id"]
        assert _code(demo.get(f"{base}/{UUID(int=1)}")) == (404, "sample.not_found")
        assert _code(demo.get(f"{base}/{sample}/fields/nope")) == (404, "sample.field_not_found")
        assert _code(demo.get(f"{base}/not-an-id")) == (422, "request.invalid")
        assert _code(demo.get("/datasets/demo/versions/99999999999999999999")) == (404, "version.not_found")


class TestSplits:
    def test_create_read_resolve_and_download(self, fresh: Api) -> None:
        made = fresh.client.post("/datasets/demo/splits", json={"name": "by-patient", "recipe": RECIPE})
        assert made.status_code == 201, made.text
        split = made.json()
        assert made.headers["location"] == "/api/v1/datasets/demo/splits/by-patient@1"
        assert fresh.get("/datasets/demo/splits/by-patient").json() == split
        assert fresh.get("/datasets/demo/splits/by-patient@1").json() == split
        assert fresh.get("/datasets/demo/splits").json()["items"] == [split]
        assert fresh.get("/datasets/demo").json()["default_split"] == "by-patient"
        plan = fresh.client.post("/loaders/resolve", json={"dataset": "demo", "split": "train"}).json()
        assert plan["subset"]["count"] == split["subsets"][0]["count"]
        assert plan["store"]["config"]["kind"] == "lmdb"
        part = fresh.client.get(f"{fresh.address}{plan['parts'][0]['url']}")
        assert part.headers["content-type"] == "application/vnd.apache.arrow.file"
        assert part.headers["etag"] == f'"{plan["parts"][0]["digest"]}"'
        assert "immutable" in part.headers["cache-control"]
        assert pa.ipc.open_file(pa.py_buffer(part.content)).get_batch(0).num_rows == plan["subset"]["count"]

    def test_idempotency_key_makes_one_split(self, fresh: Api) -> None:
        body, headers = {"name": "a", "recipe": RECIPE}, {"Idempotency-Key": "s1"}
        first = fresh.client.post("/datasets/demo/splits", json=body, headers=headers)
        again = fresh.client.post("/datasets/demo/splits", json=body, headers=headers)
        assert first.json() == again.json()
        assert _code(fresh.client.post("/datasets/demo/splits", json=body)) == (409, "split.exists")

    @pytest.mark.parametrize(
        ("recipe", "code"),
        [
            ({"subsets": []}, "request.invalid"),
            ({"subsets": [{"name": "a"}]}, "request.invalid"),
            ({"subsets": [{"name": "a", "ratio": 0.5, "count": 3}]}, "request.invalid"),
            ({"subsets": [{"name": "a", "ratio": 0.7}, {"name": "b", "ratio": 0.7}]}, "request.invalid"),
            ({"subsets": [{"name": "a", "ratio": 0.5}, {"name": "a", "ratio": 0.5}]}, "request.invalid"),
            ({"format": 2}, "request.invalid"),
            ({"seed": 1.5}, "request.invalid"),
            ({"group_by": "nope"}, "split.recipe_invalid"),
            ({"filter": "patient = 'p00'"}, "split.infeasible"),
            ({"filter": "SELECT"}, "filter.invalid"),
            ({"subsets": [{"name": "a", "count": 1000}], "group_by": None}, "split.infeasible"),
        ],
    )
    def test_wrong_recipes_are_refused(self, demo: Api, recipe: dict[str, object], code: str) -> None:
        body = {"name": "x", "recipe": {**RECIPE, **recipe}}
        assert _code(demo.client.post("/datasets/demo/splits", json=body)) == (422, code)
        assert demo.get("/datasets/demo/splits").json()["items"] == []

    def test_unknown_split_subset_and_version_are_named(self, fresh: Api) -> None:
        fresh.client.post("/datasets/demo/splits", json={"name": "by-patient", "recipe": RECIPE})

        def resolve(dataset: str, split: str) -> tuple[int, str]:
            return _code(fresh.client.post("/loaders/resolve", json={"dataset": dataset, "split": split}))

        assert resolve("demo", "nope") == (404, "split.subset_not_found")
        assert resolve("demo", "nope/train") == (404, "split.not_found")
        assert resolve("demo@7", "train") == (404, "version.not_found")
        assert resolve("nope", "train") == (404, "dataset.not_found")
        assert resolve("demo", "") == (422, "request.invalid")
        assert _code(fresh.get("/datasets/demo/splits/by-patient@2")) == (404, "split.not_found")
        assert _code(fresh.get("/datasets/demo/splits/no name")) == (404, "split.not_found")
        assert _code(fresh.get(f"/datasets/demo/members/{UUID(int=3)}")) == (404, "split.not_found")
