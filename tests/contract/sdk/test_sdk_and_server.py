"""What the SDK sends and reads is what the server takes and gives."""

import dataclasses
import typing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from penstock import Client, _models
from penstock._ranks import Ranks
from penstock._reach import STORE_ID_FILE, _machine_id
from penstock._subset import LoadedSubset
from penstock._telemetry import registration_body
from penstock.contract.telemetry import LoaderPoint
from penstock_server.domain.datasets.schemas import ColumnSchema, DatasetCreate, DatasetRead, DatasetSchema, FieldSchema
from penstock_server.domain.jobs.schemas import IngestCreate, JobError, JobProgress, JobRead, QuarantinedRead
from penstock_server.domain.loaders.schemas import LoaderCreate, LoaderCreated, Point
from penstock_server.domain.splits import schemas as splits
from penstock_server.domain.tokens.schemas import TokenCreate, TokenRead
from penstock_server.domain.versions.schemas import VersionRead
from penstock_server.store import identity

PAIRS = [
    (_models.FieldInfo, FieldSchema),
    (_models.ColumnInfo, ColumnSchema),
    (_models.Schema, DatasetSchema),
    (_models.DatasetInfo, DatasetRead),
    (_models.Version, VersionRead),
    (_models.Split, splits.SplitRead),
    (_models.Subset, splits.SubsetRead),
    (_models.JobInfo, JobRead),
    (_models.JobProgress, JobProgress),
    (_models.JobError, JobError),
    (_models.Quarantined, QuarantinedRead),
    (_models.TokenInfo, TokenRead),
    (_models.PlanDataset, splits.PlanDataset),
    (_models.PlanVersion, splits.PlanVersion),
    (_models.PlanSplit, splits.PlanSplit),
    (_models.PlanPart, splits.PlanPart),
    (_models.StoreReach, splits.PlanStore),
    (_models.LoaderPlan, splits.LoaderPlan),
    (_models.RegisteredLoader, LoaderCreated),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda value: value.__name__)
def test_server_gives_every_member_that_the_sdk_reads(ours: Any, theirs: type[BaseModel]) -> None:
    given = {field.alias or name: field for name, field in theirs.model_fields.items()}
    hints = typing.get_type_hints(ours)
    for member in dataclasses.fields(ours):
        assert member.name in given
        may_be_none = type(None) in typing.get_args(given[member.name].annotation)
        assert not may_be_none or type(None) in typing.get_args(hints[member.name]), f"{member.name} may be null"


def test_point_has_the_same_members() -> None:
    assert {field.name for field in dataclasses.fields(LoaderPoint)} == set(Point.model_fields)


def test_registration_is_taken_as_it_is() -> None:
    subset = LoadedSubset("demo", 1, "by-patient", 1, "train", "b3:0", 10)
    body = registration_body(subset, run="r", ranks=Ranks(0, 1), batch_size=8, output="torch")
    assert set(body) == set(LoaderCreate.model_fields)
    LoaderCreate.model_validate(body)


class Recorder:
    """Keeps the bodies that a client sends."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        return httpx.Response(418, json={"code": "x", "detail": "enough"})


@pytest.mark.parametrize(
    ("send", "model"),
    [
        (lambda client: client.create_dataset("demo", description="d", project="default"), DatasetCreate),
        (lambda client: client.create_token("ci", expires_in_days=1), TokenCreate),
        (
            lambda client: client.dataset("demo").ingest("/x", label="a", group="b", sidecar="c.csv", source="s"),
            IngestCreate,
        ),
        (
            lambda client: client.dataset("demo").split(
                "s", {"train": 0.5, "val": 10}, group_by="p", stratify_by=["a", "b"], filter="x > 1", version=1
            ),
            splits.SplitCreate,
        ),
        (lambda client: client.resolve("demo@1", split="by-patient@1/train"), splits.ResolveRequest),
    ],
)
def test_what_the_sdk_sends_is_valid(send: Any, model: type[BaseModel]) -> None:
    recorder = Recorder()
    client = Client("http://127.0.0.1:9", "pst_x", http_transport=httpx.MockTransport(recorder))
    with pytest.raises(Exception, match="enough"):
        send(client)
    model.model_validate_json(recorder.bodies[0])


def test_embedded_store_is_known_by_the_same_name(tmp_path: Path) -> None:
    assert STORE_ID_FILE == identity.STORE_ID_FILE
    assert identity.machine_id(tmp_path) == _machine_id(tmp_path) == _machine_id(tmp_path / "project")
