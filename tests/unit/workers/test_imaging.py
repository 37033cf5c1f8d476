import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from penstock_workers import imaging
from penstock_workers.imaging import NotAnImage, read_picture


def encoded(image: Image.Image, kind: str) -> bytes:
    output = io.BytesIO()
    image.save(output, kind)
    return output.getvalue()


def noise(mode: str = "RGB", size: tuple[int, int] = (300, 200)) -> Image.Image:
    pixels = np.random.Generator(np.random.PCG64(5)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("TIFF", "image/tiff"),
        ("WEBP", "image/webp"),
        ("BMP", "image/bmp"),
    ],
)
def test_picture_is_read_with_its_thumbnail(kind: str, media_type: str) -> None:
    picture = read_picture(encoded(noise(), kind), is_thumbnail_wanted=True)
    assert (picture.media_type, picture.width, picture.height) == (media_type, 300, 200)
    assert picture.thumbnail is not None
    with Image.open(io.BytesIO(picture.thumbnail)) as small:
        assert (small.format, small.size) == ("WEBP", (160, 107))


@pytest.mark.parametrize("mode", ["L", "P", "1", "RGBA", "LA", "CMYK", "I;16", "I", "F"])
def test_thumbnail_of_every_mode(mode: str) -> None:
    image = noise("L").convert("I").convert("I;16") if mode == "I;16" else noise("RGB").convert("L").convert(mode)
    picture = read_picture(encoded(image, "TIFF"), is_thumbnail_wanted=True)
    assert picture.thumbnail is not None


def test_small_picture_is_not_enlarged() -> None:
    picture = read_picture(encoded(noise(size=(20, 10)), "PNG"), is_thumbnail_wanted=True)
    assert picture.thumbnail is not None
    with Image.open(io.BytesIO(picture.thumbnail)) as small:
        assert small.size == (20, 10)


@pytest.mark.parametrize("data", [b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>", b"\x89PNG\r\n\x1a\n"])
def test_other_files_are_no_pictures(data: bytes) -> None:
    with pytest.raises(NotAnImage):
        read_picture(data, is_thumbnail_wanted=True)


def test_empty_file_says_so() -> None:
    with pytest.raises(NotAnImage, match="the file is empty"):
        read_picture(b"", is_thumbnail_wanted=False)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_picture_cut_anywhere_is_damaged(kind: str) -> None:
    whole = encoded(noise(size=(160, 120)), kind)
    for length in range(0, len(whole) - 64, 1024):
        with pytest.raises(NotAnImage):
            read_picture(whole[:length], is_thumbnail_wanted=True)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_damaged_bytes_never_raise_anything_else() -> None:
    random = np.random.Generator(np.random.PCG64(11))
    for kind in ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP"):
        whole = encoded(noise(size=(64, 48)), kind)
        for _ in range(60):
            data = bytearray(whole)
            for place in random.integers(0, len(data), 8):
                data[place] ^= int(random.integers(1, 256))
            with contextlib.suppress(NotAnImage):
                read_picture(bytes(data), is_thumbnail_wanted=True)


def test_huge_picture_is_refused_before_it_is_decoded() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 65_535, 65_535, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(NotAnImage, match="more than 200,000,000"):
        read_picture(bomb, is_thumbnail_wanted=True)


def test_picture_just_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imaging, "PIXEL_LIMIT", 100)
    with pytest.raises(NotAnImage, match="more than 100"):
        read_picture(encoded(noise(size=(11, 10)), "PNG"), is_thumbnail_wanted=True)
