import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.contract import members, records, telemetry
from penstock.contract.codes import ErrorCode
from penstock.contract.kinds import ColumnKind, FieldKind
from penstock.contract.names import DatasetRef, InvalidName, SplitRef, require_column, require_slug

POINT = telemetry.LoaderPoint(
    at=datetime(2026, 11, 16, 12, 0, 0, 250_000, tzinfo=UTC),
    seconds=2.0, epoch=1, step=3, steps=10, samples=640, bytes=123_456, batches=10, wait_seconds=0.5,
    decode_seconds=0.25, ready_batches=2, window_bytes=1 << 20, inflight_bytes=4096, request_p50_ms=1.5,
    request_p99_ms=9.0, retries=1, errors=0,
)  # fmt: skip


class TestNames:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("demo", DatasetRef("demo")),
            ("demo@3", DatasetRef("demo", 3)),
            ("demo@latest", DatasetRef("demo")),
            ("a.b_c-d@12", DatasetRef("a.b_c-d", 12)),
        ],
    )
    def test_dataset_reference(self, text: str, expected: DatasetRef) -> None:
        assert DatasetRef.parse(text) == expected
        assert DatasetRef.parse(str(expected)) == expected

    @pytest.mark.parametrize(
        "text", ["", "Demo", "demo@", "demo@0", "demo@-1", "demo@x", "-a", "a" * 64, "a/b", "a\n", "a@٣"]
    )
    def test_bad_dataset_reference(self, text: str) -> None:
        with pytest.raises(InvalidName, match=r"."):
            DatasetRef.parse(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("train", SplitRef("train")),
            ("by-patient/train", SplitRef("train", "by-patient")),
            ("by-patient@2/fold0.train", SplitRef("fold0.train", "by-patient", 2)),
        ],
    )
    def test_split_reference(self, text: str, expected: SplitRef) -> None:
        assert SplitRef.parse(text) == expected
        assert str(expected) == text

    def test_split_version_without_subset_says_what_to_write(self) -> None:
        with pytest.raises(InvalidName, match="split@version/subset"):
            SplitRef.parse("by-patient@2")

    @pytest.mark.parametrize("text", ["", "/", "a/", "/b", "a/b/c", "a@0/b"])
    def test_bad_split_reference(self, text: str) -> None:
        with pytest.raises(InvalidName, match=r"."):
            SplitRef.parse(text)

    def test_slug_and_column_rules(self) -> None:
        assert require_slug("a" * 63, what="dataset")
        assert require_column("_Tumor9", what="column") == "_Tumor9"
        for bad in ("9a", "a-b", "", "a\n", "ä"):
            with pytest.raises(InvalidName, match="column"):
                require_column(bad, what="column")


class TestDigests:
    def test_round_trip(self) -> None:
        assert records.parse_digest(records.format_digest(b"\xab" * 32)) == b"\xab" * 32
        assert records.format_digest(b"\0" * 32) == "b3:" + "0" * 64

    @pytest.mark.parametrize("text", ["", "b3:", "b3:" + "0" * 63, "b3:" + "G" * 64, "sha:" + "0" * 64])
    def test_bad_digest(self, text: str) -> None:
        with pytest.raises(ValueError, match="no digest"):
            records.parse_digest(text)


class TestMembersHeader:
    HEADER = members.MembersHeader(
        (members.MembersField("image", FieldKind.IMAGE),),
        (
            members.MembersColumn("tumor", ColumnKind.CATEGORY, ("no", "yes")),
            members.MembersColumn("age", ColumnKind.INT),
        ),
    )

    def test_golden_text(self) -> None:
        assert self.HEADER.to_json() == (
            '{"format":1,"fields":[{"name":"image","kind":"image"}],"columns":['
            '{"name":"tumor","kind":"category","values":["no","yes"]},{"name":"age","kind":"int","values":null}]}'
        )
        assert members.MembersHeader.from_json(self.HEADER.to_json()) == self.HEADER

    def test_other_format_says_update(self) -> None:
        with pytest.raises(ValueError, match="update penstock"):
            members.MembersHeader.from_json('{"format":2}')

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"format":1}', '{"format":1,"fields":[{"name":1,"kind":"image"}],"columns":[]}']
    )
    def test_damaged_header(self, text: str) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            members.MembersHeader.from_json(text)

    @pytest.mark.parametrize(("count", "width"), [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
    def test_bitset_width(self, count: int, width: int) -> None:
        assert members.bitset_bytes(count) == width


class TestLoaderPoint:
    def test_round_trip_through_json(self) -> None:
        document = json.loads(json.dumps(POINT.to_json()))
        assert document["at"] == "2026-11-16T12:00:00.250000Z"
        assert telemetry.LoaderPoint.from_json(document) == POINT

    def test_other_time_zones_become_utc(self) -> None:
        document = POINT.to_json() | {"at": POINT.at.astimezone(timezone(timedelta(hours=5))).isoformat()}
        assert telemetry.LoaderPoint.from_json(document) == POINT

    @pytest.mark.parametrize(
        ("name", "value"),
        [("samples", -1), ("samples", 1.5), ("seconds", float("nan")), ("seconds", "2"), ("step", True), ("at", 5),
         ("at", "2026-11-16T12:00:00"), ("wait_seconds", float("inf"))],
    )  # fmt: skip
    def test_wrong_member_is_named(self, name: str, value: object) -> None:
        with pytest.raises(ValueError, match=name):
            telemetry.LoaderPoint.from_json(POINT.to_json() | {name: value})

    def test_missing_member_is_named(self) -> None:
        document = POINT.to_json()
        del document["retries"]
        with pytest.raises(ValueError, match="retries"):
            telemetry.LoaderPoint.from_json(document)


def test_codes_are_domain_and_reason() -> None:
    for code in ErrorCode:
        domain, _, reason = code.value.partition(".")
        assert f"{domain}_{reason}".upper() == code.name


def test_record_constants_are_frozen() -> None:
    assert (records.CHUNK_BYTES, records.LAYOUT_VERSION) == (524_288, 1)
    assert records.OWN_KINDS == ("manifest", "members", "thumbnail", "root", "head", "staged")
