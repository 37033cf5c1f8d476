"""Golden vectors: the ids stored in every dataset hang on them."""

import hashlib
import threading
from uuid import UUID

import pytest

from penstock.contract import ids

DATASET = UUID("018f0000-0000-7000-8000-000000000001")
CONTENT = bytes(range(32))


def test_content_hash_is_sha256_over_named_hashes() -> None:
    a, b = b"\x01" * 32, b"\x02" * 32
    by_hand = hashlib.sha256(
        (5).to_bytes(4, "little") + b"image" + a + (4).to_bytes(4, "little") + b"mask" + b
    ).digest()
    assert ids.content_hash({"mask": b, "image": a}) == by_hand
    assert by_hand.hex() == "a72a33edcf8065e6d3239549473bd26c3b3d93c6ca33bb97e56b9ba460be6ada"


def test_sample_id_golden() -> None:
    def framed(value: bytes) -> bytes:
        return len(value).to_bytes(4, "little") + value

    parts = (b"penstock-sample-1", DATASET.bytes, "slide ä".encode(), b"0_0.png", CONTENT)
    raw = bytearray(hashlib.sha256(b"".join(map(framed, parts))).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    found = ids.sample_id(DATASET, "slide ä", "0_0.png", CONTENT)
    assert found.bytes == bytes(raw)
    assert str(found) == "6bb0f669-0699-84f7-acd6-22f5abddfe7a"


def test_object_id_golden_and_independent_of_field_order() -> None:
    assert str(ids.object_id(DATASET, ["image", "mask"], CONTENT)) == "7c69bead-35d6-8f6d-b972-e2c4be23c2ca"
    assert ids.object_id(DATASET, ["mask", "image"], CONTENT) == ids.object_id(DATASET, ["image", "mask"], CONTENT)


def test_own_object_id_golden() -> None:
    assert str(ids.own_object_id(DATASET, "thumbnail", "abc")) == "d26fda9a-5758-8b14-bb83-3cc7f7cdcd5b"


def test_framing_keeps_neighbours_apart() -> None:
    assert ids.sample_id(DATASET, "ab", "c", CONTENT) != ids.sample_id(DATASET, "a", "bc", CONTENT)
    assert ids.object_id(DATASET, ["a", "b"], CONTENT) != ids.object_id(DATASET, ["ab"], CONTENT)
    assert ids.own_object_id(DATASET, "root", "x") != ids.own_object_id(DATASET, "roo", "tx")


@pytest.mark.parametrize("derived", [ids.sample_id(DATASET, "s", "k", CONTENT), ids.own_object_id(DATASET, "a", "b")])
def test_derived_ids_are_uuid_version_8(derived: UUID) -> None:
    assert derived.version == 8
    assert derived.variant == "specified in RFC 4122"


def test_wrong_hash_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, got 3"):
        ids.sample_id(DATASET, "s", "k", b"abc")
    with pytest.raises(ValueError, match="at least one field"):
        ids.content_hash({})
    with pytest.raises(ValueError, match="different fields"):
        ids.object_id(DATASET, ["image", "image"], CONTENT)


def test_uuid7_is_strictly_increasing_over_threads() -> None:
    made: list[list[UUID]] = [[] for _ in range(4)]

    def make(into: list[UUID]) -> None:
        into.extend(ids.uuid7() for _ in range(2000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for series in made:
        assert series == sorted(series)
    together = [value for series in made for value in series]
    assert len(set(together)) == 8000
    assert {value.version for value in together} == {7}
