"""What a picture costs, from its header alone: features, and memory while it is read. Nothing is decoded."""

from dataclasses import dataclass
from typing import Any

from .decode import LIMITS, PictureLimits, checked_header
from .pixels import PictureProcessor

_DECODING = 10  # bytes per pixel at most, the decoded picture's 3 included


@dataclass(frozen=True)
class PictureCost:
    """width, height: of the upright picture. features: its rows in the prompt, without the tokens of marks. n_patches:
    that the tower reads. nbytes: most memory at once, from the file to the patches, the file itself not counted."""

    width: int
    height: int
    features: int
    n_patches: int
    nbytes: int


def cost_of_size(make: PictureProcessor[Any], width: int, height: int, file_bytes: int = 0) -> PictureCost:
    """The cost of a picture of this size. PictureError: the model cannot read it."""
    layout = make.layout(width, height)
    pixels = width * height
    columns = max(tile.columns for tile in layout.tiles) * max(layout.grid[1], 1) * make.settings.patch_size
    resized = 3 * height * columns + 3 * layout.n_patches * make.settings.patch_size**2
    tile = max(tile.rows * tile.columns for tile in layout.tiles) * layout.patch_dim
    reading = 3 * pixels + resized + layout.nbytes + 4 * tile // make.frames
    decoding = _DECODING * pixels + file_bytes
    return PictureCost(width, height, layout.features, layout.n_patches, max(reading, decoding))


def cost(
    data: bytes, make: PictureProcessor[Any], name: str = "the picture", limits: PictureLimits = LIMITS
) -> PictureCost:
    """The cost of a picture's file. PictureError: it is too large, of another type, or the model cannot read it."""
    header = checked_header(data, name, limits)
    return cost_of_size(make, *header.shown_size, len(data))
