"""Pictures: is it one, how large is it, and a small copy of it."""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

THUMBNAIL_SIDE = 160
PIXEL_LIMIT = 200_000_000
# Named, because Pillow also knows formats that start other programs or hold a whole document.
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "JPEG2000")

Image.MAX_IMAGE_PIXELS = PIXEL_LIMIT


class NotAnImage(ValueError):
    """The bytes cannot be decoded as a picture; the message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Picture:
    media_type: str
    width: int
    height: int
    thumbnail: bytes | None


def read_picture(data: bytes, *, is_thumbnail_wanted: bool) -> Picture:
    """Decode every pixel of the first frame, so that a cut file is found now and not in a training run."""
    if not data:
        msg = "the file is empty"
        raise NotAnImage(msg)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _require_reasonable_size(image)
            image.load()
            media_type = Image.MIME.get(image.format or "", "application/octet-stream")
            width, height = image.size
            thumbnail = _thumbnail(image) if is_thumbnail_wanted else None
    except UnidentifiedImageError:
        msg = "not a picture that Penstock can read (PNG, JPEG, TIFF, WebP, BMP, GIF, JPEG 2000)"
        raise NotAnImage(msg) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        msg = f"the picture has more than {PIXEL_LIMIT:,} pixels"
        raise NotAnImage(msg) from None
    except NotAnImage:
        raise
    # Decoders report damage in as many ways as there are formats, and one file must not end the job.
    except Exception as error:
        msg = f"the picture is damaged: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise NotAnImage(msg) from None
    return Picture(media_type, width, height, thumbnail)


def _require_reasonable_size(image: Image.Image) -> None:
    width, height = image.size
    if width * height > PIXEL_LIMIT:
        msg = f"the picture has {width} x {height} pixels, more than {PIXEL_LIMIT:,}"
        raise NotAnImage(msg)
    if not width or not height:
        msg = f"the picture has no pixels ({width} x {height})"
        raise NotAnImage(msg)


def _thumbnail(image: Image.Image) -> bytes:
    small = _displayable(image)
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BILINEAR)
    output = io.BytesIO()
    small.save(output, "WEBP", quality=82, method=1)
    return output.getvalue()


def _displayable(image: Image.Image) -> Image.Image:
    if image.mode in ("RGB", "L"):
        return image.copy()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _stretched(image)
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


def _stretched(image: Image.Image) -> Image.Image:
    """Sixteen-bit and float pictures carry their own range; show it from darkest to brightest."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    low, high = float(values.min()), float(values.max())
    scale = 255.0 / (high - low) if high > low else 0.0
    return Image.fromarray(((values - low) * scale).astype(np.uint8))
