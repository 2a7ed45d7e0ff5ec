"""Qwen2.5-VL, Qwen3-VL, Qwen3.5, LFM3-VL: one rectangle, its sides rounded to whole features."""

import math
from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.errors import PictureError
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

from .pixels import PictureLayout, PictureProcessor, PictureTile
from .resize import resize


def smart_size(height: int, width: int, unit: int, least: int, most: int, smallest: int = 0) -> tuple[int, int]:
    """(height, width) in multiples of `unit` (half to even), of about the same ratio, with `least` to `most` pixels in
    all. smallest: of a rounded side."""
    h, w = (max(smallest, round(side / unit) * unit) for side in (height, width))
    if h * w > most:
        shrink = math.sqrt(height * width / most)
        h, w = (max(unit, math.floor(side / shrink / unit) * unit) for side in (height, width))
    elif h * w < least:
        grow = math.sqrt(least / (height * width))
        h, w = (math.ceil(side * grow / unit) * unit for side in (height, width))
    return h, w


class SmartResize(PictureProcessor[SmartResizeSettings]):
    """A tile of the picture's ratio; patches are ordered by features: blocks of merge_size x merge_size."""

    @property
    def written(self) -> str:
        return f"<|vision_start|>{self.placeholder}<|vision_end|>"

    @property
    def block(self) -> int:
        return self.settings.merge_size

    @property
    def frames(self) -> int:
        return self.settings.temporal_patch_size

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        if max(height, width) > s.LARGEST_RATIO * min(height, width):
            raise PictureError(
                f"the picture has {width} x {height} pixels, expected a longer side of at most {s.LARGEST_RATIO} times "
                "the shorter one. Cut it."
            )
        unit = s.patch_size * s.merge_size
        h, w = smart_size(height, width, unit, s.min_pixels, s.max_pixels)
        tile = PictureTile(h // s.patch_size, w // s.patch_size, h // unit, w // unit)
        n = tile.features
        return PictureLayout(width, height, (tile,), s.image_token * n, n, self.patch_dim)

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        (tile,) = layout.tiles
        p = self.settings.patch_size
        yield resize(rgb, tile.rows * p, tile.columns * p, self.settings.resample)
