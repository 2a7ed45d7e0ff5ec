"""SmolVLM and Idefics3: enlarged to a longest side, stretched to whole tiles, cut; then the whole as one more tile."""

from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings

from .pixels import PictureLayout, PictureProcessor, PictureTile
from .resize import resize


class Idefics3Tiles(PictureProcessor[Idefics3Settings]):
    """Tiles in raster order, then the whole; a picture of one tile is that tile."""

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        rows, columns = self._grid(height, width)
        side = s.tile_size // s.patch_size
        n = side // s.merge_size
        one = s.image_token * n**2
        tiles = [PictureTile(side, side, n, n, (r, c)) for r in range(rows) for c in range(columns)]
        lines = (
            "".join(f"{s.around}<row_{r + 1}_col_{c + 1}>{one}" for c in range(columns)) + "\n" for r in range(rows)
        )
        text = "".join(lines) + "\n" * bool(tiles) + s.around + s.whole + one + s.around
        tiles.append(PictureTile(side, side, n, n))
        return PictureLayout(width, height, tuple(tiles), text, n**2 * len(tiles), self.patch_dim, (rows, columns))

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        s = self.settings
        side = s.tile_size
        rgb = resize(rgb, *self._enlarged(layout.height, layout.width), s.resample)
        rows, columns = layout.grid
        if rows:
            rgb = resize(rgb, rows * side, columns * side, s.resample)
        for tile in layout.tiles:
            if tile.place is None:
                yield resize(rgb, side, side, s.resample)
            else:
                r, c = tile.place
                yield rgb[r * side : (r + 1) * side, c * side : (c + 1) * side]

    def _enlarged(self, height: int, width: int) -> tuple[int, int]:
        """(height, width): the longer side is longest_edge, the other one even; then both at most LARGEST_SIDE."""
        s = self.settings
        h, w = _with_longest(height, width, s.longest_edge or 4 * s.tile_size)
        if width >= height:
            h = max(1, h + h % 2)
        else:
            w = max(1, w + w % 2)
        if max(h, w) > s.LARGEST_SIDE:
            h, w = _with_longest(h, w, s.LARGEST_SIDE)
        return max(h, 1), max(w, 1)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of tiles; (0, 0): one tile."""
        s = self.settings
        h, w = self._enlarged(height, width)
        side = s.tile_size
        if w >= h:
            columns = -(-w // side)
            rows = -(-int(columns * side / (w / h)) // side)
        else:
            rows = -(-h // side)
            columns = -(-int(rows * side * (w / h)) // side)
        return (rows, columns) if s.use_tiles and (rows > 1 or columns > 1) else (0, 0)


def _with_longest(height: int, width: int, longest: int) -> tuple[int, int]:
    """(height, width) of this ratio; its longer side is `longest`."""
    ratio = width / height
    return (int(longest / ratio), longest) if width >= height else (longest, int(longest * ratio))
