"""Granite 4 vision, as LLaVA-NeXT: the whole picture as a square; tiles of the picture padded to a listed size."""

import math
from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings

from .pixels import PictureLayout, PictureProcessor, PictureTile, Unpadded
from .resize import resize


class LlavaNextTiles(PictureProcessor[LlavaNextSettings]):
    """The whole picture, then tiles in raster order. Features of padding are not used: `PictureLayout.unpadded`."""

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        size = self._size(height, width)
        rows, columns = (side // s.tile_size for side in size)
        side = s.tile_size // s.patch_size
        part = side * s.query_side // s.window_side
        tiles = (
            PictureTile(side, side, part, part),
            *(PictureTile(side, side, part, part, (r, c)) for r in range(rows) for c in range(columns)),
        )
        unpadded = _unpadded(height, width, rows * part, columns * part)
        n = part**2 + (unpadded.bottom - unpadded.top) * (unpadded.right - unpadded.left + 1)
        return PictureLayout(width, height, tiles, s.image_token * n, n, self.patch_dim, (rows, columns), unpadded)

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        s = self.settings
        side = s.tile_size
        padded = self._padded(rgb, *self._size(layout.height, layout.width))
        for tile in layout.tiles:
            if tile.place is None:
                yield resize(rgb, side, side, s.resample)
            else:
                r, c = tile.place
                yield padded[r * side : (r + 1) * side, c * side : (c + 1) * side]

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width): of the listed sizes the one that the most pixels of the picture reach, then the one with the
        least padding, then the first."""
        s = self.settings

        def fit(size: tuple[int, int]) -> tuple[int, int]:
            w, h = size
            scale = min(w / width, h / height)
            reached = min(int(width * scale) * int(height * scale), width * height)
            return reached, reached - w * h

        w, h = max(zip(s.sizes[::2], s.sizes[1::2], strict=True), key=fit)
        return h, w

    def _padded(self, rgb: np.ndarray, height: int, width: int) -> np.ndarray:
        """The picture in the middle of black, as large as fits; an odd pixel of padding is below or on the right."""
        h, w = rgb.shape[:2]
        of_height, of_width = height / h, width / w
        if of_width < of_height:
            h, w = min(math.ceil(h * of_width), height), width
        else:
            h, w = height, min(math.ceil(w * of_height), width)
        out = np.zeros((height, width, 3), np.uint8)
        top, left = (height - h) // 2, (width - w) // 2
        out[top : top + h, left : left + w] = resize(rgb, h, w, self.settings.resample)
        return out


def _unpadded(height: int, width: int, rows: int, columns: int) -> Unpadded:
    """The features that are not padding, of a grid of rows x columns; the picture has height x width pixels."""
    if width / height > columns / rows:
        padding = (rows - int(round(height * (columns / width), 7))) // 2
        return Unpadded(rows, columns, padding, rows - padding, 0, columns)
    padding = (columns - int(round(width * (rows / height), 7))) // 2
    return Unpadded(rows, columns, 0, rows, padding, columns - padding)
