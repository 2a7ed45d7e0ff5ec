"""The arrays that a vision tower reads of a picture, and their layout, which depends on the picture's size alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import numpy as np

from hybrid.quant.ggml.vision.settings import PictureSettings

S = TypeVar("S", bound=PictureSettings)


@dataclass(frozen=True)
class PictureTile:
    """A rectangle of rows x columns patches that the tower reads by itself, and of the features that it makes of them.

    place: (row, column) in the grid of tiles; None: the whole picture.
    """

    rows: int
    columns: int
    feature_rows: int
    feature_columns: int
    place: tuple[int, int] | None = None

    @property
    def features(self) -> int:
        return self.feature_rows * self.feature_columns


@dataclass(frozen=True)
class Unpadded:
    """Which features of tiles are used if the picture was padded before it was cut.

    The tiles' features together are a grid of rows x columns. Its rows from `top` to `bottom` - 1 and columns from
    `left` to `right` - 1 are used; after each of these rows follows one more feature, the newline.
    """

    rows: int
    columns: int
    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class PictureLayout:
    """What becomes of a picture of one size.

    width, height  of the picture
    tiles          in the order of the patches, and of the features in the prompt
    text           stands in the prompt for the picture; the processor's image_token once for every feature
    features       number of features in the prompt, newlines of `unpadded` included
    patch_dim      numbers in a patch
    grid           (rows, columns) of tiles; (0, 0): the picture is not cut
    unpadded       which features of the tiles in the grid are used; None: all, tile by tile
    """

    width: int
    height: int
    tiles: tuple[PictureTile, ...]
    text: str
    features: int
    patch_dim: int
    grid: tuple[int, int] = (0, 0)
    unpadded: Unpadded | None = None

    @property
    def n_patches(self) -> int:
        return sum(tile.rows * tile.columns for tile in self.tiles)

    @property
    def nbytes(self) -> int:
        """Bytes of the array of patches."""
        return 4 * self.n_patches * self.patch_dim


@dataclass(frozen=True, eq=False)
class Pixels:
    """patches f32 [patch, patch_dim] of all tiles, one tile after the other, in the order that the tower reads."""

    patches: np.ndarray
    layout: PictureLayout


class PictureProcessor(ABC, Generic[S]):
    """Makes patches of pictures, as one kind of processor of transformers does.

    A tile's patches are in raster order, or block after block of MERGE x MERGE patches (each block in raster order).
    A patch is [channel, frame, y, x], or [y, x, channel].
    """

    CHANNELS_LAST: ClassVar[bool] = False

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @property
    def placeholder(self) -> str:
        """The text that a chat template writes for a picture."""
        return self.settings.image_token

    @property
    def written(self) -> str:
        """The placeholder, with the text around it that a chat template of the model writes."""
        return self.placeholder

    @property
    def block(self) -> int:
        """Patches of a side of the blocks that patches are ordered by; 1: raster order."""
        return 1

    @property
    def frames(self) -> int:
        """How often a patch repeats the picture, as if it were a film."""
        return 1

    @property
    def patch_dim(self) -> int:
        return 3 * self.frames * self.settings.patch_size**2

    @abstractmethod
    def layout(self, width: int, height: int) -> PictureLayout:
        """What becomes of a picture of this size. PictureError: the model cannot read it."""

    @abstractmethod
    def images(self, rgb: np.ndarray, layout: PictureLayout) -> Iterator[np.ndarray]:
        """The pixels u8 [height, width, 3] of each tile of the layout."""

    def pixels(self, rgb: np.ndarray) -> Pixels:
        """rgb: u8 [height, width, 3]. PictureError: the model cannot read it."""
        layout = self.layout(rgb.shape[1], rgb.shape[0])
        patches = np.empty((layout.n_patches, layout.patch_dim), np.float32)
        at, p = 0, self.settings.patch_size
        for image, tile in zip(self.images(rgb, layout), layout.tiles, strict=True):
            n = tile.rows * tile.columns
            used = image[: tile.rows * p, : tile.columns * p]  # a convolution does not read the rest
            self._write_patches(used, patches[at : at + n])
            at += n
        return Pixels(patches, layout)

    def _write_patches(self, image: np.ndarray, out: np.ndarray) -> None:
        from hybrid.quant.ggml.kernels.patches import write_patches, write_patches_channels_last  # imports numba

        p = self.settings.patch_size
        image = np.ascontiguousarray(image)
        if self.CHANNELS_LAST:
            write_patches_channels_last(image, p, self._values, out.reshape(-1, p, p, 3))
        else:
            write_patches(image, p, self.block, self.frames, self._values, out.reshape(-1, 3, self.frames, p, p))

    @cached_property
    def _values(self) -> np.ndarray:
        """f32 [channel, 256]: the number for each byte, computed as the reference computes it."""
        level = np.arange(256, dtype=np.float32)
        mean, std = (np.asarray(v, np.float32)[:, None] for v in (self.settings.image_mean, self.settings.image_std))
        if not mean.any() and (std == 1).all():
            return np.repeat((level * np.float32(1 / 255))[None], 3, axis=0)
        return np.ascontiguousarray((level - mean * np.float32(255)) / (std * np.float32(255)))
