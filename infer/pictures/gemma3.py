"""Gemma 3: the picture stretched to a square; with pan and scan, also crops along the longer side of a long one."""

import math
from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings

from .pixels import PictureLayout, PictureProcessor, PictureTile
from .resize import resize


class Gemma3Squares(PictureProcessor[Gemma3PictureSettings]):
    """The whole picture, then its crops."""

    @property
    def placeholder(self) -> str:
        return self.settings.start

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        side = s.image_size // s.patch_size
        n = side // s.pool
        rows, columns = self._crops(height, width)
        crops = tuple(PictureTile(side, side, n, n, (r, c)) for r in range(rows) for c in range(columns))
        one = text = f"\n\n{s.start}{s.image_token * n**2}{s.end}\n\n"
        if crops:
            several = " ".join([one] * len(crops))
            text = f"Here is the original image {one} and here are some crops to help you see better {several}"
        tiles = (PictureTile(side, side, n, n), *crops)
        return PictureLayout(width, height, tiles, text, n**2 * len(tiles), self.patch_dim, (rows, columns))

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        s = self.settings
        rows, columns = layout.grid
        for tile in layout.tiles:
            part = rgb
            if tile.place:
                h, w = -(-layout.height // rows), -(-layout.width // columns)
                r, c = tile.place
                part = np.ascontiguousarray(rgb[r * h : (r + 1) * h, c * w : (c + 1) * w])
            yield resize(part, s.image_size, s.image_size, s.resample)

    def _crops(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of crops; (0, 0): none."""
        s = self.settings
        long, short = max(height, width), min(height, width)
        if not s.pan_and_scan or long / short < s.min_ratio:
            return 0, 0
        n = min(max(2, min(long // s.min_crop_size, math.floor(long / short + 0.5))), s.max_crops)
        if min(-(-long // n), short) < s.min_crop_size:
            return 0, 0
        n = -(-long // -(-long // n))  # the reference fails if a crop begins after the end
        return (1, n) if width >= height else (n, 1)
