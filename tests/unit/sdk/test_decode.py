import io
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from penstock._decode import Decoder, stacked
from penstock._errors import EngineClosed, SampleCorrupt
from penstock.contract.kinds import FieldKind

RNG = np.random.default_rng(0)


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.close()


def stored(image: Image.Image, kind: str = "PNG", **options: object) -> np.ndarray:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return np.frombuffer(bytearray(file.getvalue()), np.uint8)


def npy(array: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    np.save(file, array)
    return np.frombuffer(bytearray(file.getvalue()), np.uint8)


def ids(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8)[:, None].repeat(16, axis=1)


def decode(decoder: Decoder, kind: FieldKind, views: list[np.ndarray]) -> object:
    values = decoder.decode("f", kind, views, ids(len(views)))
    for value in values:
        if isinstance(value, SampleCorrupt):
            raise value
    return values if kind in (FieldKind.TEXT, FieldKind.BYTES) else stacked(values)


def test_pictures_of_one_size_are_stacked_in_order(decoder: Decoder) -> None:
    pixels = RNG.integers(0, 256, (9, 6, 5, 3), np.uint8)
    found = decode(decoder, FieldKind.IMAGE, [stored(Image.fromarray(one)) for one in pixels])
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint8
    assert np.array_equal(found, pixels.transpose(0, 3, 1, 2))


def test_pictures_of_different_size_are_a_list(decoder: Decoder) -> None:
    found = decode(decoder, FieldKind.IMAGE, [stored(Image.new("RGB", (4, 2))), stored(Image.new("RGB", (3, 3)))])
    assert isinstance(found, list)
    assert [one.shape for one in found] == [(3, 2, 4), (3, 3, 3)]


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("1", 1), ("RGB", 3), ("RGBA", 4), ("P", 3), ("LA", 4), ("CMYK", 3)]
)
def test_channels_follow_the_mode(decoder: Decoder, mode: str, channels: int) -> None:
    kind = "TIFF" if mode == "CMYK" else "PNG"
    found = decode(decoder, FieldKind.IMAGE, [stored(Image.new(mode, (5, 4)), kind)])
    assert isinstance(found, np.ndarray)
    assert found.shape == (1, channels, 4, 5)
    assert found.dtype == np.uint8


def test_sixteen_bit_picture_is_refused_and_the_sample_named(decoder: Decoder) -> None:
    deep = Image.fromarray(np.zeros((2, 2), np.uint16))
    with pytest.raises(SampleCorrupt, match=r"'f' of sample 00000000-0000.*more than 8 bits"):
        decode(decoder, FieldKind.IMAGE, [stored(deep)])


def test_mask_keeps_class_numbers(decoder: Decoder) -> None:
    classes = RNG.integers(0, 7, (4, 6), np.uint8)
    palette = Image.fromarray(classes, "L").convert("L")
    indexed = Image.new("P", (6, 4))
    indexed.putdata([int(value) for value in classes.ravel()])
    indexed.putpalette([value for index in range(256) for value in (index, 255 - index, 7)])
    deep = Image.fromarray(classes.astype(np.uint16) * 1000)
    found = decode(decoder, FieldKind.MASK, [stored(palette), stored(indexed)])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, np.stack([classes, classes]))
    found = decode(decoder, FieldKind.MASK, [stored(deep)])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found[0], classes.astype(np.int32) * 1000)
    bilevel = decode(decoder, FieldKind.MASK, [stored(Image.new("1", (2, 2), 1))])
    assert isinstance(bilevel, np.ndarray)
    assert bilevel.tolist() == [[[1, 1], [1, 1]]]


def test_coloured_mask_is_refused(decoder: Decoder) -> None:
    with pytest.raises(SampleCorrupt, match="one number a pixel"):
        decode(decoder, FieldKind.MASK, [stored(Image.new("RGB", (2, 2)))])


def test_broken_picture_names_its_own_sample(decoder: Decoder) -> None:
    good = stored(Image.new("RGB", (8, 8), (1, 2, 3)))
    for bad in (good[: len(good) // 2], np.frombuffer(b"hello", np.uint8), np.empty(0, np.uint8)):
        with pytest.raises(SampleCorrupt, match="03030303-0303-0303-0303-030303030303"):
            decode(decoder, FieldKind.IMAGE, [good, good, good, bad, good])
        found = decoder.decode("f", FieldKind.IMAGE, [good, good, good, bad, good], ids(5))
        assert [isinstance(value, SampleCorrupt) for value in found] == [False, False, False, True, False]


def test_arrays_keep_shape_type_and_values(decoder: Decoder) -> None:
    arrays = [RNG.random((3, 4)).astype(np.float32) for _ in range(3)]
    found = decode(decoder, FieldKind.ARRAY, [npy(array) for array in arrays])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, np.stack(arrays))
    big_endian = decode(decoder, FieldKind.ARRAY, [npy(np.arange(3, dtype=">i4"))])
    assert isinstance(big_endian, np.ndarray)
    assert big_endian.dtype == np.int32
    assert big_endian.tolist() == [[0, 1, 2]]


def test_pickled_arrays_are_never_opened(decoder: Decoder) -> None:
    file = io.BytesIO()
    np.save(file, np.array([object()]), allow_pickle=True)
    with pytest.raises(SampleCorrupt, match=r"no \.npy array"):
        decode(decoder, FieldKind.ARRAY, [np.frombuffer(file.getvalue(), np.uint8)])


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + (len(text) + 1).to_bytes(2, "little") + text.encode() + b"\n"


def dds_of_unknown_pixels() -> bytes:
    size, flags, height, width = 124, 0x1007, 4, 4
    header = [size, flags, height, width, *[0] * 14, 32, 0, *[0] * 11]
    return b"DDS " + b"".join(number.to_bytes(4, "little") for number in header)


@pytest.mark.parametrize(
    ("kind", "data", "raised"),
    [
        (FieldKind.ARRAY, b"PK\x03\x04 no archive", "BadZipFile"),
        (FieldKind.ARRAY, npy_header("{'descr':'<f8',((("), "TokenError"),
        (FieldKind.ARRAY, npy_header("{'descr':'<f8','fortran_order':False,'shape':(99999999999999,)}"), "MemoryError"),
        (FieldKind.IMAGE, dds_of_unknown_pixels(), "NotImplementedError"),
        (FieldKind.MASK, dds_of_unknown_pixels(), "NotImplementedError"),
    ],
)
def test_whatever_a_library_raises_names_the_sample(
    decoder: Decoder, kind: FieldKind, data: bytes, raised: str
) -> None:
    (found,) = decoder.decode("f", kind, [np.frombuffer(data, np.uint8)], ids(1))
    assert isinstance(found, SampleCorrupt)
    assert "'f' of sample 00000000-0000-0000-0000-000000000000" in str(found)
    assert raised in str(found)


def decoding_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-decode")]


def test_a_closed_decoder_starts_no_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = set(decoding_threads())
    used, unused = Decoder(), Decoder()
    views = [stored(Image.new("L", (2, 2)))] * 16
    used.decode("f", FieldKind.IMAGE, views, ids(16))
    assert len(set(decoding_threads()) - before) == 2
    for decoder in (used, unused):
        decoder.close()
        # As the thread that assembles does, when its loader is closed in the middle of an epoch.
        with pytest.raises(EngineClosed, match="closed while a batch was decoded"):
            decoder.decode("f", FieldKind.IMAGE, views, ids(16))
    for thread in set(decoding_threads()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_text_and_bytes(decoder: Decoder) -> None:
    views = [np.frombuffer(text.encode(), np.uint8) for text in ("grün", "")]
    assert decode(decoder, FieldKind.TEXT, views) == ["grün", ""]
    found = decode(decoder, FieldKind.BYTES, views)
    assert isinstance(found, list)
    assert found[0] is views[0]
    with pytest.raises(SampleCorrupt, match="UTF-8"):
        decode(decoder, FieldKind.TEXT, [np.array([0xFF], np.uint8)])


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA"])
@pytest.mark.parametrize("size", [(1, 1), (5, 3)])
def test_pictures_can_be_written_into(decoder: Decoder, mode: str, size: tuple[int, int]) -> None:
    ids = np.zeros((1, 16), np.uint8)
    (picture,) = decoder.decode("image", FieldKind.IMAGE, [stored(Image.new(mode, size))], ids)
    assert picture.flags.writeable
    assert picture.flags.c_contiguous
    picture[:] = 7
