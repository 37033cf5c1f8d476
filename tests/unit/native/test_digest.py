"""Row hashes and version digests: golden vectors, and every Arrow form of the same rows gives the same hash.

The vectors are also in `docs/formats.md`; a change of any of them breaks every digest that users have stored.
"""

import datetime
import decimal
import hashlib
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native import blake3, digest_in_id_order, row_hashes, xxh3_64

FORMATS = Path(__file__).parents[3] / "docs" / "formats.md"


def golden_table() -> pa.Table:
    return pa.table(
        {
            "n": pa.array([1, None, -(2**40)], pa.int64()),
            "x": pa.array([0.5, float("nan"), -0.0], pa.float64()),
            "ok": pa.array([True, False, None]),
            "name": pa.array(["tumour", "", "Ä"]),
            "raw": pa.array([b"\x00\x01", b"", None], pa.binary()),
            "codes": pa.array([[1, 2], [], [None]], pa.list_(pa.int32())),
            "at": pa.array([0, 1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC")),
        }
    )


GOLDEN_ROWS = [
    "5b2146452489e4ccf81466db10509fcb",
    "beb1d4400ad11f7ef877f2dbeb79872d",
    "50c442f298e6acd61bb76e2581341a3c",
]
GOLDEN_VERSION = "84bb8cee0a1d1dd2ebddee2540af7d823eb82b3bcf5362d9bdac75aff95cc571"


def test_blake3_and_xxh3_give_the_published_values() -> None:
    assert blake3(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert xxh3_64(b"") == 0x2D06800538D394C2
    assert blake3(memoryview(b"abc")) == blake3(np.frombuffer(b"abc", np.uint8)) == blake3(bytearray(b"abc"))


def test_golden_rows_never_change() -> None:
    hashes = row_hashes(golden_table())
    assert [hashes[place : place + 16].hex() for place in range(0, len(hashes), 16)] == GOLDEN_ROWS


def test_golden_version_never_changes() -> None:
    ids = b"".join(hashlib.sha256(bytes([number])).digest()[:16] for number in range(3))
    rows = row_hashes(golden_table())
    assert digest_in_id_order(ids, [("facts", rows), ("metadata", rows)]).hex() == GOLDEN_VERSION


def test_golden_vectors_are_documented() -> None:
    text = FORMATS.read_text()
    for vector in [*GOLDEN_ROWS, GOLDEN_VERSION]:
        assert vector in text


def _forms() -> list[pa.Table]:
    table = golden_table()
    wide: dict[str, pa.DataType] = {
        "n": pa.int64(),
        "name": pa.large_utf8(),
        "raw": pa.large_binary(),
        "codes": pa.large_list(pa.int64()),
    }
    views: dict[str, pa.DataType] = {"name": pa.string_view(), "raw": pa.binary_view()}
    coded = table
    for name in ("name", "n"):
        coded = coded.set_column(coded.schema.get_field_index(name), name, coded[name].dictionary_encode())
    return [
        table.cast(pa.schema([(field.name, wide.get(field.name, field.type)) for field in table.schema])),
        table.cast(pa.schema([(field.name, views.get(field.name, field.type)) for field in table.schema])),
        coded,
        table.set_column(6, "at", table["at"].cast(pa.timestamp("ns", tz="Europe/Rome"))),
        pa.concat_tables([table.slice(0, 1), table.slice(1, 2)]),
        pa.concat_tables([table, table]).slice(3, 3),
    ]


@pytest.mark.parametrize("number", range(6))
def test_every_form_of_the_same_rows_hashes_alike(number: int) -> None:
    assert row_hashes(_forms()[number]) == row_hashes(golden_table())


def test_record_batch_and_reader_are_taken() -> None:
    batch = golden_table().to_batches()[0]
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    assert row_hashes(batch) == row_hashes(reader) == row_hashes(golden_table())


def test_fixed_size_forms_hash_as_variable_ones() -> None:
    plain = pa.table({"b": pa.array([b"ab", b"cd"]), "l": pa.array([[1, 2], [3, 4]])})
    fixed = pa.table(
        {"b": pa.array([b"ab", b"cd"], pa.binary(2)), "l": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2))}
    )
    assert row_hashes(fixed) == row_hashes(plain)
    assert row_hashes(fixed.slice(1)) == row_hashes(plain)[16:]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.uint64()])
def test_integer_width_does_not_matter(kind: pa.DataType) -> None:
    numbers = [0, 1, 100, None]
    assert row_hashes(pa.table({"n": pa.array(numbers, kind)})) == row_hashes(pa.table({"n": pa.array(numbers)}))


def test_empty_table_has_no_hashes() -> None:
    assert row_hashes(golden_table().slice(0, 0)) == b""
    assert len(row_hashes(pa.table({"n": pa.array([None, None], pa.null())}))) == 32


def test_date_hashes_as_midnight() -> None:
    day = pa.table({"at": pa.array([datetime.date(2026, 11, 16)])})
    time = pa.table({"at": pa.array([datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)])})
    assert row_hashes(day) == row_hashes(time)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([decimal.Decimal(1)]),
        pa.array([{"a": 1}]),
        pa.array([datetime.time(1)]),
        pa.array([[{"a": 1}]]),
    ],
    ids=["decimal", "struct", "time", "list of struct"],
)
def test_column_without_encoding_is_named(array: "pa.Array[Any]") -> None:
    with pytest.raises(ValueError, match='"odd"'):
        row_hashes(pa.table({"odd": array}))


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        row_hashes([1, 2])  # type: ignore[arg-type]  # misuse


def test_version_digest_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="no multiple of 16"):
        digest_in_id_order(b"x", [])
    with pytest.raises(ValueError, match='family "f" has 1 row hashes for 2 ids'):
        digest_in_id_order(bytes(31) + b"x", [("f", bytes(16))])
    with pytest.raises(ValueError, match=re.escape("stands in rows 0 and 1")):
        digest_in_id_order(bytes(32), [])


def _encode(value: object) -> bytes:
    """The documented encoding, written a second time in Python."""
    match value:
        case None:
            return b"\x00"
        case bool():
            return bytes([3, value])
        case int():
            return b"\x01" + struct.pack("<q", value)
        case float():
            bits = 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
            return b"\x02" + struct.pack("<Q", bits)
        case str():
            return b"\x04" + struct.pack("<I", len(value.encode())) + value.encode()
        case bytes():
            return b"\x05" + struct.pack("<I", len(value)) + value
        case list():
            return b"\x06" + struct.pack("<I", len(value)) + b"".join(map(_encode, value))
    raise AssertionError(value)


_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(),
        st.none() | st.booleans(),
        st.none() | st.text(max_size=20),
        st.none() | st.binary(max_size=20),
        st.none() | st.lists(st.none() | st.text(max_size=3), max_size=4),
    ),
    max_size=12,
)
_TYPES = [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.list_(pa.string())]
_KINDS = [1, 2, 3, 4, 5, 6]


@given(_ROWS)
def test_any_rows_have_the_documented_encoding(rows: list[tuple[object, ...]]) -> None:
    names = [f"column{number}" for number in range(6)]
    columns = {
        name: pa.array([row[place] for row in rows], kind)
        for place, (name, kind) in enumerate(zip(names, _TYPES, strict=True))
    }
    family = b"".join(
        struct.pack("<I", len(name)) + name.encode() + bytes([kind]) for name, kind in zip(names, _KINDS, strict=True)
    )
    key = blake3(b"penstock-family-1" + family)
    expected = b"".join(_keyed_blake3(key, b"".join(map(_encode, row)))[:16] for row in rows)
    assert row_hashes(pa.table(columns)) == expected


def _keyed_blake3(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE3 in plain Python for inputs of one chunk, straight from the paper."""
    mask = 0xFFFFFFFF
    iv = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
    order = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    mixed = [*columns, (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    assert len(data) <= 1024
    chain = list(struct.unpack("<8I", key))
    blocks = [data[place : place + 64] for place in range(0, len(data), 64)] or [b""]
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        # keyed | start of chunk | end of chunk and root
        flags = 16 | (1 if number == 0 else 0) | ((2 | 8) if is_last else 0)
        words = list(struct.unpack("<16I", block.ljust(64, b"\0")))
        state = chain + iv[:4] + [0, 0, len(block), flags]

        def turn(value: int, by: int) -> int:
            return ((value >> by) | (value << (32 - by))) & mask

        for _ in range(7):
            for step, (a, b, c, d) in enumerate(mixed):
                for half, (first, second) in enumerate([(16, 12), (8, 7)]):
                    state[a] = (state[a] + state[b] + words[2 * step + half]) & mask
                    state[d] = turn(state[d] ^ state[a], first)
                    state[c] = (state[c] + state[d]) & mask
                    state[b] = turn(state[b] ^ state[c], second)
            words = [words[place] for place in order]
        chain = [state[place] ^ state[place + 8] for place in range(8)]
    return struct.pack("<8I", *chain)
