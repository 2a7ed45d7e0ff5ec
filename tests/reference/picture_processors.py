"""Pictures to patches, written plainly from the rules of each kind of processor: every tile as pixels, one by one.

`tiles(settings, rgb)` are the u8 images that the tower reads; `patches(settings, images)` their numbers in f64, by
patch. Sizes are computed with fractions where the rule is a rounding.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

from .resizing import resized

Size = tuple[int, int]  # height, width


def tiles(s: PictureSettings, rgb: np.ndarray) -> list[np.ndarray]:
    kinds: dict[type[PictureSettings], Any] = {
        SmartResizeSettings: smart_resize, Lfm2TilesSettings: lfm2, Gemma3PictureSettings: gemma3,
        Idefics3Settings: idefics3, LlavaNextSettings: llava_next, Gemma4PictureSettings: gemma4,
    }  # fmt: skip
    return list(kinds[type(s)](s, rgb))


def patches(s: PictureSettings, images: list[np.ndarray]) -> np.ndarray:
    """f64 [patch, number], in the order of the tower."""
    p = s.patch_size
    block = s.merge_size if isinstance(s, SmartResizeSettings) else 1
    frames = s.temporal_patch_size if isinstance(s, SmartResizeSettings) else 1
    last = isinstance(s, Lfm2TilesSettings | Gemma4PictureSettings)
    out = []
    for image in images:
        values = (image / 255 - np.array(s.image_mean)) / np.array(s.image_std)
        rows, columns = image.shape[0] // p, image.shape[1] // p
        places = [(r, c) for r in range(rows) for c in range(columns)]
        places.sort(key=lambda place: (place[0] // block, place[1] // block, place[0] % block, place[1] % block))
        for r, c in places:
            patch = values[r * p : (r + 1) * p, c * p : (c + 1) * p]
            if last:
                out.append(patch.ravel())
            else:
                out.append(np.stack([patch[..., channel] for channel in range(3) for _ in range(frames)]).ravel())
    return np.array(out)


def cut(rgb: np.ndarray, side: int) -> Iterator[np.ndarray]:
    for top in range(0, rgb.shape[0], side):
        for left in range(0, rgb.shape[1], side):
            yield rgb[top : top + side, left : left + side]


def rounded(side: int, unit: int) -> int:
    """The nearest multiple, half to even."""
    return round(Fraction(side, unit)) * unit


def fitted(size: Size, unit: int, least: int, most: int, smallest: int) -> Size:
    h, w = (max(smallest, rounded(side, unit)) for side in size)
    area = size[0] * size[1]
    if h * w > most:
        h, w = (max(1, math.floor(side / math.sqrt(area / most) / unit)) * unit for side in size)
    elif h * w < least:
        h, w = (math.ceil(side * math.sqrt(least / area) / unit) * unit for side in size)
    return h, w


def smart_resize(s: SmartResizeSettings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    size = fitted(rgb.shape[:2], s.patch_size * s.merge_size, s.min_pixels, s.max_pixels, 0)
    yield resized(rgb, *size, s.resample)


def lfm2(s: Lfm2TilesSettings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    height, width = rgb.shape[:2]
    unit = s.patch_size * s.merge_size
    h, w = (max(s.patch_size, rounded(side, unit)) for side in (height, width))
    if s.use_tiles and h * w > s.max_tokens * unit**2 * s.tolerance:
        grids = [(r, c) for r in range(1, s.max_tiles + 1) for c in range(1, s.max_tiles + 1)
                 if s.min_tiles <= r * c <= s.max_tiles]  # fmt: skip
        nearest = min(abs(width / height - c / r) for r, c in grids)
        near = sorted((grid for grid in grids if abs(width / height - grid[1] / grid[0]) == nearest), key=math.prod)
        fits = [grid for grid in near[1:] if height * width > 0.5 * s.tile_size**2 * math.prod(grid)]
        rows, columns = fits[-1] if fits else near[0]
        yield from cut(resized(rgb, rows * s.tile_size, columns * s.tile_size, s.resample), s.tile_size)
        if not s.use_thumbnail:
            return
    size = fitted((height, width), unit, s.min_tokens * unit**2, s.max_tokens * unit**2, unit)
    yield resized(rgb, *size, s.resample)


def gemma3(s: Gemma3PictureSettings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    yield resized(rgb, s.image_size, s.image_size, s.resample)
    height, width = rgb.shape[:2]
    long, short = max(height, width), min(height, width)
    if not s.pan_and_scan or long / short < s.min_ratio:
        return
    n = min(max(min(math.floor(Fraction(long, short) + Fraction(1, 2)), long // s.min_crop_size), 2), s.max_crops)
    size = math.ceil(Fraction(long, n))
    if min(size, short) < s.min_crop_size:
        return
    for start in range(0, long, size):
        part = rgb[:, start : start + size] if width >= height else rgb[start : start + size]
        yield resized(part, s.image_size, s.image_size, s.resample)


def idefics3(s: Idefics3Settings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    tile = s.tile_size

    def longest(size: Size, to: int) -> Size:
        h, w = size
        return (int(to / (w / h)), to) if w >= h else (to, int(to * (w / h)))

    height, width = rgb.shape[:2]
    h, w = longest((height, width), s.longest_edge)
    if width >= height:
        h = max(h + h % 2, 1)
    else:
        w = max(w + w % 2, 1)
    if max(h, w) > 4096:
        h, w = longest((h, w), 4096)
    rgb = resized(rgb, h, w, s.resample)
    if not s.use_tiles:
        yield resized(rgb, tile, tile, s.resample)
        return
    ratio = w / h
    if w >= h:
        w = math.ceil(w / tile) * tile
        h = math.ceil(int(w / ratio) / tile) * tile
    else:
        h = math.ceil(h / tile) * tile
        w = math.ceil(int(h * ratio) / tile) * tile
    rgb = resized(rgb, h, w, s.resample)
    if (h, w) != (tile, tile):
        yield from cut(rgb, tile)
    yield resized(rgb, tile, tile, s.resample)


def llava_next(s: LlavaNextSettings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    height, width = rgb.shape[:2]
    yield resized(rgb, s.tile_size, s.tile_size, s.resample)
    best, rank = (0, 0), (-1, 0)
    for w, h in zip(s.sizes[::2], s.sizes[1::2], strict=True):
        scale = min(w / width, h / height)
        reached = min(int(width * scale) * int(height * scale), width * height)
        if (reached, -(w * h - reached)) > rank:
            best, rank = (h, w), (reached, -(w * h - reached))
    h, w = best
    if w / width < h / height:
        inner = min(math.ceil(height * (w / width)), h), w
    else:
        inner = h, min(math.ceil(width * (h / height)), w)
    picture = resized(rgb, *inner, s.resample)
    above, before = (h - inner[0]) // 2, (w - inner[1]) // 2
    padded = np.pad(picture, ((above, h - inner[0] - above), (before, w - inner[1] - before), (0, 0)))
    yield from cut(padded, s.tile_size)


def gemma4(s: Gemma4PictureSettings, rgb: np.ndarray) -> Iterator[np.ndarray]:
    height, width = rgb.shape[:2]
    unit = s.patch_size * s.pool
    factor = math.sqrt(s.max_tokens * unit**2 / (height * width))
    h, w = (math.floor(factor * side / unit) for side in (height, width))
    if h == 0:
        h, w = 1, min(width // height, s.max_tokens)
    elif w == 0:
        h, w = min(height // width, s.max_tokens), 1
    yield resized(rgb, h * unit, w * unit, s.resample)
