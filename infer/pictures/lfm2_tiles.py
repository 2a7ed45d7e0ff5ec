"""LFM2-VL: a small picture is one rectangle; a large one is cut into square tiles, with a small copy of the whole."""

from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings

from .pixels import PictureLayout, PictureProcessor, PictureTile
from .resize import resize
from .smart_resize import smart_size


class Lfm2Tiles(PictureProcessor[Lfm2TilesSettings]):
    """Tiles in raster order, then the whole. Every tile runs alone, without the reference's padding."""

    CHANNELS_LAST = True

    def layout(self, width: int, height: int) -> PictureLayout:
        s = self.settings
        whole = self._whole(height, width)
        rows, columns = self._grid(height, width) if self._is_large(height, width) else (1, 1)
        if (rows, columns) == (1, 1):
            tiles: tuple[PictureTile, ...] = (whole,)
            text = s.image_token * whole.features
        else:
            side = s.tile_size // s.patch_size
            n = side // s.merge_size
            tiles = tuple(PictureTile(side, side, n, n, (r, c)) for r in range(rows) for c in range(columns))
            text = "".join(self._mark(tile) + s.image_token * n**2 for tile in tiles)
            if s.use_thumbnail:
                tiles = (*tiles, whole)
                text += (s.thumbnail if s.use_marks else "") + s.image_token * whole.features
        if s.use_marks:
            text = s.start + text + s.end
        grid = (0, 0) if len(tiles) == 1 else (rows, columns)
        return PictureLayout(width, height, tiles, text, sum(tile.features for tile in tiles), self.patch_dim, grid)

    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        s = self.settings
        rows, columns = layout.grid
        side = s.tile_size
        cut = resize(rgb, rows * side, columns * side, s.resample) if rows else rgb
        for tile in layout.tiles:
            if tile.place is None:
                yield resize(rgb, tile.rows * s.patch_size, tile.columns * s.patch_size, s.resample)
            else:
                r, c = tile.place
                yield cut[r * side : (r + 1) * side, c * side : (c + 1) * side]

    def _whole(self, height: int, width: int) -> PictureTile:
        s = self.settings
        unit = s.patch_size * s.merge_size
        h, w = smart_size(height, width, unit, s.min_tokens * unit**2, s.max_tokens * unit**2, smallest=unit)
        return PictureTile(h // s.patch_size, w // s.patch_size, h // unit, w // unit)

    def _is_large(self, height: int, width: int) -> bool:
        s = self.settings
        unit = s.patch_size * s.merge_size
        h, w = (max(s.patch_size, round(side / unit) * unit) for side in (height, width))
        return s.use_tiles and s.max_tiles > 1 and h * w > s.max_tokens * unit**2 * s.tolerance

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of the allowed grid with the nearest ratio. Of equally near ones: the last one, by area, with
        less than twice the picture's pixels."""
        s = self.settings
        # a set that is filled as in the reference: grids of equal area are in the order of its elements
        found = {
            (columns, rows)
            for n in range(s.min_tiles, s.max_tiles + 1)
            for columns in range(1, n + 1)
            for rows in range(1, n + 1)
            if s.min_tiles <= columns * rows <= s.max_tiles
        }
        best, nearest = (1, 1), float("inf")
        for columns, rows in sorted(found, key=lambda grid: grid[0] * grid[1]):
            off = abs(width / height - columns / rows)
            if off < nearest or (off == nearest and width * height > 0.5 * s.tile_size**2 * columns * rows):
                best, nearest = (rows, columns), off
        return best

    def _mark(self, tile: PictureTile) -> str:
        assert tile.place
        row, column = tile.place
        return f"<|img_row_{row + 1}_col_{column + 1}|>" if self.settings.use_marks else ""
