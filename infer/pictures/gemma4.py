"""Gemma 4: a rectangle of the picture's ratio that fills the budget of features, whatever the picture's size."""

import math
from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings

from .pixels import PictureLayout, PictureProcessor, PictureTile
from .resize import resize


class Gemma4Rectangle(PictureProcessor[Gemma4PictureSettings]):
    """One tile; patches in raster order."""

    CHANNELS_LAST = True

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        rows, columns = self._features(height, width)
        tile = PictureTile(rows * s.pool, columns * s.pool, rows, columns)
        text = s.start + s.image_token * tile.features + s.end
        return PictureLayout(width, height, (tile,), text, tile.features, self.patch_dim)

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        (tile,) = layout.tiles
        p = self.settings.patch_size
        yield resize(rgb, tile.rows * p, tile.columns * p, self.settings.resample)

    def _features(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of features. A side that would have none has one, and the other as many as the ratio says."""
        s = self.settings
        unit = s.patch_size * s.pool
        scale = math.sqrt(s.max_tokens * unit**2 / (height * width))
        rows, columns = (math.floor(scale * side / unit) for side in (height, width))
        if not rows:
            return 1, max(1, min(width // height, s.max_tokens))
        if not columns:
            return max(1, min(height // width, s.max_tokens)), 1
        return rows, columns
