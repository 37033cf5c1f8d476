"""The demo dataset: patches that look like stained tissue, the same bytes on every machine.

Everything is integer arithmetic on hashes of positions, and the PNG files are written by `indexed_png` below: the
output of a compression library changes with its version, and the ids of samples are hashes of these bytes.
"""

import csv
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock_workers.png import indexed_png

DEMO_DATASET = "demo"
DEMO_DESCRIPTION = "Made-up stained tissue patches of 60 patients at 3 sites, for trying Penstock out."
DEMO_SIDECAR = "metadata.csv"
DEMO_LABEL = "tumor"
DEMO_GROUP = "patient"
DEMO_SPLIT = "by-patient"
DEMO_SUBSETS = {"train": 0.7, "val": 0.15, "test": 0.15}
DEMO_SAMPLES = 3_000

_PATIENTS = 60
_PATCHES_EACH = DEMO_SAMPLES // _PATIENTS
_SITES = ("Cagliari", "Lund", "Utrecht")
_SIDE = 96
_TEXTURE_SIDE = 512
_ONE = 8 << 13
_STAMP = 8  # half the window a nucleus is drawn in, in pixels
_SEED = 0x70656E73746F636B

_PLACES = ("tumour bed", "invasive front", "stroma", "lymphoid rim", "adipose edge", "duct wall", "vessel nearby")
_QUALITIES = ("sharp", "slightly out of focus", "thick section", "pale staining", "strong staining", "small fold")
_REMARKS = ("second reader agrees", "checked once", "rescan asked", "pen mark outside", "reviewed at the board", "")

# cos and sin of 16 directions over half a turn, times 64.
_COS64 = (64, 63, 59, 53, 45, 36, 24, 12, 0, -12, -24, -36, -45, -53, -59, -63)
_SIN64 = (0, 12, 24, 36, 45, 53, 59, 63, 64, 63, 59, 53, 45, 36, 24, 12)

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Patient:
    """Sixty of these: what all patches of one person share."""

    number: int
    site: int
    age: int
    tumor_per_mille: int

    @property
    def name(self) -> str:
        return f"p{self.number:02d}"


def make_demo(folder: Path) -> None:
    """Write the pictures, masks and `metadata.csv` of the demo into `folder`; a finished one is left alone."""
    sidecar = folder / DEMO_SIDECAR
    if sidecar.is_file():
        return
    _textures()
    with ThreadPoolExecutor(max_workers=2) as pool:
        tables = list(pool.map(lambda patient: _write_patient(folder, patient), demo_patients()))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "mask", DEMO_LABEL, DEMO_GROUP, "site", "age", "nuclei_count", "note"))
    writer.writerows(row for table in tables for row in table)
    # The sidecar is the sign of a finished folder, so it appears last and whole.
    unfinished = sidecar.with_name(f".{DEMO_SIDECAR}.part")
    unfinished.write_text(text.getvalue(), encoding="utf-8")
    unfinished.rename(sidecar)


def demo_patients() -> Iterator[Patient]:
    """The sixty patients, in order."""
    for number in range(1, _PATIENTS + 1):
        draws = _draws(number, 4)
        yield Patient(
            number=number,
            site=int(draws[0] % 7) % 3,
            age=34 + int(draws[1] % 52),
            tumor_per_mille=40 + int(draws[2] % 420),
        )


def _write_patient(folder: Path, patient: Patient) -> list[tuple[str | int, ...]]:
    for kind in ("patches", "masks"):
        (folder / kind / patient.name).mkdir(parents=True, exist_ok=True)
    is_tumor = _draws(1_000 + patient.number, _PATCHES_EACH) % 1000 < patient.tumor_per_mille
    stains, masks, counts = render(patient, is_tumor)
    palette = site_palette(patient.site)
    rows: list[tuple[str | int, ...]] = []
    for index in range(_PATCHES_EACH):
        name = f"{patient.name}/{patient.name}-{index:02d}.png"
        (folder / "patches" / name).write_bytes(indexed_png(stains[index], palette, depth=8))
        (folder / "masks" / name).write_bytes(indexed_png(masks[index], _MASK_PALETTE, depth=1))
        label = "yes" if is_tumor[index] else "no"
        note = _note(patient.number * _PATCHES_EACH + index)
        site = _SITES[patient.site]
        image, mask = f"patches/{name}", f"masks/{name}"
        rows.append((image, mask, label, patient.name, site, patient.age, int(counts[index]), note))
    return rows


def render(patient: Patient, is_tumor: npt.NDArray[np.bool_]) -> tuple[Bytes, Bytes, Ints]:
    """Stain indices (16 x haematoxylin + eosin), nucleus masks and nucleus counts of one patient's patches."""
    count = len(is_tumor)
    draws = _draws(2_000 + patient.number, count * 8).reshape(8, count)
    fibres, cells, grain = _textures()
    direction = (draws[0] % len(fibres)).astype(np.int32)
    stroma = _crops(fibres, direction, draws[1])
    tissue = _crops(cells[None], np.zeros(count, np.int32), draws[2])
    noise = _crops(grain[None], np.zeros(count, np.int32), draws[3])
    tumor = is_tumor[:, None, None]

    nuclei, mask, counts = _nuclei(patient, is_tumor)
    # Gaps (fat, lumen) are where the coarse tissue texture is lowest; a tumour leaves few of them.
    filled = 1024 - np.clip((np.where(tumor, 230, 340) - tissue) * 12, 0, 1024)
    eosin = 430 + ((stroma - 512) * np.where(tumor, 5, 11) >> 4) + ((tissue - 512) * 5 >> 4)
    eosin = (eosin * filled >> 10) + 30
    haematoxylin = 60 + ((tissue - 512) * 13 >> 7) + np.where(tumor, 90, 0)
    haematoxylin = haematoxylin * filled >> 10
    chromatin = 640 + ((noise - 512) * 5 >> 4) + np.where(tumor, 60, 0)
    haematoxylin = haematoxylin + ((chromatin - haematoxylin) * nuclei >> 8)
    eosin = eosin - (eosin * nuclei * 13 >> 13)

    # The grain decides between two neighbouring levels, so 16 levels do not show as bands.
    dither = (noise * 61 + stroma * 7) & 63
    levels_h = np.clip(haematoxylin + dither - 32 >> 6, 0, 15)
    levels_e = np.clip(eosin + ((dither * 37 + 11) & 63) - 32 >> 6, 0, 15)
    return ((levels_h << 4) + levels_e).astype(np.uint8), mask, counts


def _nuclei(patient: Patient, is_tumor: npt.NDArray[np.bool_]) -> tuple[Ints, Bytes, Ints]:
    """Coverage (0..256) by nuclei, their mask and how many there are, all patches at once, one nucleus at a time."""
    samples = len(is_tumor)
    most = 52
    draws = _draws(3_000 + patient.number, samples * (most * 6 + 3)).reshape(most * 6 + 3, samples)
    counts = np.where(is_tumor, 32 + draws[-1] % 20, 9 + draws[-1] % 12).astype(np.int32)
    nest_x, nest_y = (draws[-2] % 48 + 24).astype(np.int32), (draws[-3] % 48 + 24).astype(np.int32)
    border = _STAMP
    canvas = np.zeros((samples, _SIDE + 2 * border, _SIDE + 2 * border), np.int32)
    drawn = np.zeros(canvas.shape, np.uint8)
    offsets = np.arange(-_STAMP, _STAMP + 1, dtype=np.int32)
    cos64, sin64 = np.array(_COS64, np.int32), np.array(_SIN64, np.int32)
    for number in range(most):
        ours = np.flatnonzero(number < counts)
        x, y, near, turn, long_axis, short_axis = (draws[number * 6 + k][ours].astype(np.int64) for k in range(6))
        # Two of three tumour nuclei gather around a nest; the others lie anywhere.
        in_nest = is_tumor[ours] & (near % 3 > 0)
        spread_x, spread_y = x % 31 + (x >> 8) % 31 - 30, y % 31 + (y >> 8) % 31 - 30
        centre_x = np.clip(np.where(in_nest, nest_x[ours] + spread_x, x % _SIDE), 0, _SIDE - 1)
        centre_y = np.clip(np.where(in_nest, nest_y[ours] + spread_y, y % _SIDE), 0, _SIDE - 1)
        grown = np.where(is_tumor[ours], 6, 0)
        # Axes are in eighths of a pixel, directions in 64ths: the rim is at 64 x 64.
        scale_long = (_ONE // (28 + grown * 2 + long_axis % 20)).astype(np.int32)[:, None, None]
        scale_short = (_ONE // (18 + grown * 2 + short_axis % 10)).astype(np.int32)[:, None, None]
        cos, sin = (table[turn % 16][:, None, None] for table in (cos64, sin64))
        along = cos * offsets[None, None, :] + sin * offsets[None, :, None]
        across = cos * offsets[None, :, None] - sin * offsets[None, None, :]
        distance = (along * scale_long >> 13) ** 2 + (across * scale_short >> 13) ** 2
        cover = np.clip(4900 - distance >> 3, 0, 256)
        rows = (centre_y[:, None] + border + offsets[None, :])[:, :, None]
        columns = (centre_x[:, None] + border + offsets[None, :])[:, None, :]
        place = (ours[:, None, None], rows, columns)
        canvas[place] = np.maximum(canvas[place], cover)
        drawn[place] |= (cover > 128).astype(np.uint8)
    inner = (slice(None), slice(border, -border), slice(border, -border))
    return canvas[inner], drawn[inner], counts


@cache
def _textures() -> tuple[Ints, Ints, Ints]:
    """Textures in 0..1023: fibres in four directions, coarse tissue, fine grain."""
    ramp = np.arange(_TEXTURE_SIDE, dtype=np.int32)
    y, x = ramp[:, None], ramp[None, :]
    fibres = [
        (2 * _value_noise(10 + k, along // 8, across, 16) + _value_noise(20 + k, along // 2, across * 2, 8)) // 3
        for k, (along, across) in enumerate(((x, y), (y, x), (x + y, y - x), (x - y, x + y)))
    ]
    coarse = (2 * _value_noise(1, x, y, 32) + _value_noise(2, x, y, 16)) // 3
    grain = (_value_noise(3, x, y, 2) + _value_noise(4, x, y, 4)) // 2
    return np.stack(fibres), coarse, grain


def _value_noise(seed: int, x: Ints, y: Ints, cell: int) -> Ints:
    """Smooth noise in 0..1023: hashed values on a grid, interpolated."""
    x, y = np.broadcast_arrays(x % _TEXTURE_SIDE, y % _TEXTURE_SIDE)
    cells = _TEXTURE_SIDE // cell
    grid = (_draws(4_000 + seed, cells * cells) % 1024).astype(np.int32).reshape(cells, cells)
    column, row = x // cell, y // cell
    # Smooth steps from cell to cell; straight ones show as squares.
    part_x, part_y = (256 * part**2 * (3 * cell - 2 * part) // cell**3 for part in (x % cell, y % cell))
    right, below = (column + 1) % cells, (row + 1) % cells
    upper = grid[row, column] * (256 - part_x) + grid[row, right] * part_x
    lower = grid[below, column] * (256 - part_x) + grid[below, right] * part_x
    blended: Ints = (upper * (256 - part_y) + lower * part_y) >> 16
    return blended


def _crops(textures: Ints, which: Ints, draws: npt.NDArray[np.uint64]) -> Ints:
    """One patch a sample, cut from a texture at a place of its own."""
    across = np.arange(_SIDE)
    places = _TEXTURE_SIDE - _SIDE
    left = (draws % places).astype(np.int64)
    top = (draws >> np.uint64(20)).astype(np.int64) % places
    rows, columns = top[:, None] + across, left[:, None] + across
    cut: Ints = textures[which[:, None, None], rows[:, :, None], columns[:, None, :]]
    return cut


def _draws(stream: int, count: int) -> npt.NDArray[np.uint64]:
    """`count` numbers of 48 bits from a named stream (splitmix64)."""
    with np.errstate(over="ignore"):
        state = np.uint64(_SEED) + np.uint64(stream) * np.uint64(0xD1342543DE82EF95)
        mixed = state + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(16)


@cache
def site_palette(site: int) -> bytes:
    """Red, green and blue of the 256 stain mixtures, by Beer and Lambert; sites differ a little."""
    haematoxylin = ((65, 70, 29), (60, 72, 24), (70, 66, 36))[site]
    eosin = ((9, 72, 36), (12, 70, 44), (6, 76, 30))[site]
    strength_h, strength_e = ((110, 62), (100, 70), (122, 55))[site]
    colours = bytearray()
    for mixture in range(256):
        level_h, level_e = divmod(mixture, 16)
        densities = (
            strength_h * level_h * h + strength_e * level_e * e for h, e in zip(haematoxylin, eosin, strict=True)
        )
        # Decimal rounds exactly; the exponential of a C library need not.
        lights = ((Decimal(-density) / Decimal(100_000)).exp() for density in densities)
        colours.extend(int(246 * light + Decimal("0.5")) for light in lights)
    return bytes(colours)


_MASK_PALETTE = b"\x00\x00\x00\xff\xff\xff"


def _note(number: int) -> str:
    draws = _draws(5_000_000 + number, 4)
    words = (_PLACES[int(draws[0]) % 7], _QUALITIES[int(draws[1]) % 6], _REMARKS[int(draws[2]) % 6])
    return ", ".join(word for word in words if word) + f"; field {int(draws[3]) % 900 + 100}"
