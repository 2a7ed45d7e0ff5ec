"""Every kind of processor against its rules in plain Python, on sizes at which the rules turn."""

import dataclasses
from typing import Any

import numpy as np
import picture_files as files
import pytest
from reference import picture_processors as reference

from hybrid.infer.pictures.pixels import PictureLayout
from hybrid.infer.pictures.processors import processor
from hybrid.quant.ggml.errors import PictureError
from hybrid.quant.ggml.vision import PROCESSORS
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

COLOURS = {"image_mean": (0.25, 0.5, 0.4), "image_std": (0.3, 0.5, 0.25)}
SMART = SmartResizeSettings.make(patch_size=3, merge_size=2, min_pixels=150, max_pixels=700, **COLOURS)
FILM = SmartResizeSettings.make(
    patch_size=2, merge_size=3, temporal_patch_size=3, min_pixels=1, max_pixels=9999, **COLOURS
)
LFM2 = Lfm2TilesSettings.make(patch_size=3, tile_size=12, min_tiles=2, max_tiles=5, min_tokens=2, max_tokens=4)
SMOL = Idefics3Settings.make(patch_size=3, tile_size=12, longest_edge=36, **COLOURS)
GEMMA3 = Gemma3PictureSettings.make(patch_size=3, image_size=12, pool=2, **COLOURS)
CROPS = Gemma3PictureSettings.make(
    patch_size=3, image_size=12, pool=2, pan_and_scan=True, min_crop_size=8, max_crops=3, min_ratio=1.5
)
GRANITE = LlavaNextSettings.make(
    patch_size=3, tile_size=12, query_side=1, window_side=2, sizes=(12, 24, 24, 12, 24, 24, 36, 12), **COLOURS
)
GEMMA4 = Gemma4PictureSettings.make(patch_size=2, pool=3, max_tokens=9)

# tiles of two patches a side, and a rest
SMOL_CUT = Idefics3Settings.make(patch_size=5, tile_size=12, longest_edge=36, **COLOURS)
GEMMA3_CUT = Gemma3PictureSettings.make(patch_size=5, image_size=12, pool=2, **COLOURS)

# (settings, height, width)
CASES: list[tuple[PictureSettings, int, int]] = [
    (SMOL_CUT, 20, 33),
    (GEMMA3_CUT, 20, 33),
    (SMART, 1, 1),
    (SMART, 12, 18),  # whole features: not resized
    (SMART, 15, 15),  # 2.5 features: half to even
    (SMART, 21, 9),  # 3.5 and 1.5 features
    (SMART, 60, 44),  # above the maximum
    (SMART, 2, 90),  # a side without a feature
    (SMART, 1, 199),
    (FILM, 15, 22),
    (LFM2, 1, 1),
    (LFM2, 12, 12),
    (LFM2, 15, 9),
    (LFM2, 12, 24),  # just not large
    (LFM2, 21, 16),  # large
    (LFM2, 20, 40),  # 1 x 2; 2 x 4 is as near, and has too many tiles
    (LFM2, 40, 40),
    (LFM2, 3, 120),
    (Lfm2TilesSettings.make(patch_size=3, tile_size=6, min_tiles=2, max_tiles=8, min_tokens=1, max_tokens=4), 20, 40),
    (Lfm2TilesSettings.make(patch_size=3, tile_size=12, min_tiles=2, max_tiles=8, min_tokens=1, max_tokens=2), 14, 28),
    (Lfm2TilesSettings.make(patch_size=3, tile_size=12, max_tokens=4, min_tokens=1, use_thumbnail=False), 21, 40),
    (Lfm2TilesSettings.make(patch_size=3, tile_size=12, max_tokens=4, min_tokens=1, use_tiles=False), 21, 40),
    (SMOL, 1, 1),
    (SMOL, 12, 12),
    (SMOL, 36, 36),
    (SMOL, 9, 13),
    (SMOL, 50, 10),
    (SMOL, 1, 300),
    (SMOL, 25, 24),
    (Idefics3Settings.make(patch_size=3, tile_size=12, longest_edge=12), 30, 20),  # one tile
    (Idefics3Settings.make(patch_size=3, tile_size=12, longest_edge=35), 7, 7),  # the other side is made even
    (Idefics3Settings.make(patch_size=3, tile_size=12, longest_edge=36, use_tiles=False), 20, 31),
    (GEMMA3, 1, 1),
    (GEMMA3, 12, 12),
    (GEMMA3, 31, 5),
    (CROPS, 12, 17),
    (CROPS, 12, 18),  # the ratio that begins to count
    (CROPS, 10, 25),  # 2.5: half up
    (CROPS, 25, 10),
    (CROPS, 9, 90),
    (CROPS, 7, 40),  # crops would be too small
    (CROPS, 8, 15),  # at least two crops, which would be too small... but for one pixel
    (GRANITE, 1, 1),
    (GRANITE, 24, 12),
    (GRANITE, 13, 20),
    (GRANITE, 17, 9),
    (GRANITE, 40, 39),
    (GRANITE, 4, 31),
    (GRANITE, 1, 70),
    (GEMMA4, 1, 1),
    (GEMMA4, 18, 18),
    (GEMMA4, 40, 29),
    (GEMMA4, 3, 50),  # a side without a feature
    (GEMMA4, 200, 3),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "height", "width"), CASES)
def test_against_the_rules(settings: PictureSettings, height: int, width: int) -> None:
    assert settings.mistake() == ""
    rgb = files.noise(height, width)
    make = processor(settings)
    found = make.pixels(rgb)
    images = reference.tiles(settings, rgb)
    expected = reference.patches(settings, images)

    p = settings.patch_size
    whole = [(image.shape[0] // p, image.shape[1] // p) for image in images]
    assert [(tile.rows, tile.columns) for tile in found.layout.tiles] == whole
    assert found.patches.dtype == np.float32 and found.patches.shape == expected.shape
    np.testing.assert_allclose(found.patches, expected, rtol=0, atol=2e-6)

    layout = make.layout(width, height)
    assert layout == found.layout
    assert (layout.width, layout.height) == (width, height)
    assert layout.nbytes == found.patches.nbytes and layout.n_patches == len(expected)
    assert layout.text.count(settings.image_token) == layout.features
    if layout.unpadded is None:
        assert layout.features == sum(tile.features for tile in layout.tiles)


def test_all_processors_are_tested() -> None:
    assert {type(settings) for settings, _, _ in CASES} == set(PROCESSORS.values())


@pytest.mark.parametrize(("height", "width"), [(1, 201), (201, 1), (3, 32768), (60000, 1)])
def test_too_long_for_whole_features(height: int, width: int) -> None:
    with pytest.raises(
        PictureError, match=f"has {width} x {height} pixels, expected a longer side of at most 200 times"
    ):
        processor(SMART).layout(width, height)


BOUNDED: list[tuple[PictureSettings, int]] = [  # and the most patches that it makes of any picture
    (Lfm2TilesSettings.make(), 10 * 1024 + 2 * 5792),  # a whole of 32 x 92672 pixels, as in the reference
    (Idefics3Settings.make(tile_size=512, patch_size=16), 17 * 1024),
    (Gemma3PictureSettings.make(image_size=896, pan_and_scan=True), 5 * 4096),
    (LlavaNextSettings.make(tile_size=336), 5 * 576),
    (Gemma4PictureSettings.make(), 280 * 9),
]


@pytest.mark.parametrize(("settings", "most"), BOUNDED)
@pytest.mark.parametrize("size", [(1, 1), (1, 32768), (32768, 1), (7000, 7000), (2, 3)])
def test_bounded(settings: PictureSettings, most: int, size: tuple[int, int]) -> None:
    """Any picture that can be decoded."""
    layout = processor(settings).layout(*size)
    assert 0 < layout.n_patches <= most


@pytest.mark.parametrize("side", range(1, 60))
def test_a_budget_of_one_feature(side: int) -> None:
    """The root of a square may round to a little less than one feature."""
    assert processor(Gemma4PictureSettings.make(max_tokens=1)).layout(side, side).features == 1


# --- text ---
TEXTS: list[tuple[PictureSettings, int, int, str]] = [
    (SMART, 12, 18, "IIIIII"),
    (GEMMA4, 18, 18, "(IIIIIIIII)"),
    (GRANITE, 24, 12, "IIIIIIIIIIIIIIII"),
    (GEMMA3, 5, 5, "\n\n(IIII)\n\n"),
    (CROPS, 10, 25, "Here is the original image \n\n(IIII)\n\n and here are some crops to help you see better "
     "\n\n(IIII)\n\n \n\n(IIII)\n\n \n\n(IIII)\n\n"),
    (SMOL, 9, 36, "F<row_1_col_1>IIIIF<row_1_col_2>IIIIF<row_1_col_3>IIII\n\nFGIIIIF"),
    (SMOL, 36, 20, "F<row_1_col_1>IIIIF<row_1_col_2>IIII\nF<row_2_col_1>IIIIF<row_2_col_2>IIII\n"
     "F<row_3_col_1>IIIIF<row_3_col_2>IIII\n\nFGIIIIF"),
    (Idefics3Settings.make(patch_size=3, tile_size=12, longest_edge=12), 9, 9, "FGIIIIF"),
    (LFM2, 12, 12, "(IIII)"),
    (LFM2, 14, 30, "(<|img_row_1_col_1|>IIII<|img_row_1_col_2|>IIIITII)"),
]  # fmt: skip
SHORT = {"image_token": "I", "start": "(", "end": ")", "around": "F", "whole": "G", "thumbnail": "T"}


@pytest.mark.parametrize(("settings", "height", "width", "expected"), TEXTS)
def test_texts(settings: Any, height: int, width: int, expected: str) -> None:
    fields = dataclasses.fields(settings)
    short = dataclasses.replace(settings, **{f.name: SHORT[f.name] for f in fields if f.name in SHORT})
    assert processor(short).layout(width, height).text == expected


def test_lfm2_without_marks() -> None:
    settings = Lfm2TilesSettings.make(patch_size=3, tile_size=12, max_tokens=4, min_tokens=1, use_marks=False)
    assert set(processor(settings).layout(30, 14).text.split("<image>")) == {""}


def test_placeholders() -> None:
    """What templates write for a picture."""
    texts = [processor(settings).placeholder for settings in (SMART, LFM2, SMOL, GEMMA3, GRANITE, GEMMA4)]
    assert texts == ["<|image_pad|>", "<image>", "<image>", "<start_of_image>", "<image>", "<|image|>"]


# --- padding of Granite's pictures ---
@pytest.mark.parametrize(("height", "width"), [(24, 12), (13, 20), (17, 9), (40, 39), (4, 31), (1, 70), (70, 1)])
def test_features_of_padding_are_not_used(height: int, width: int) -> None:
    """The picture is inside the used features, but for less than a feature."""
    make = processor(GRANITE)
    layout = make.layout(width, height)
    used, (rows, columns) = layout.unpadded, layout.grid
    assert used is not None
    assert (used.rows, used.columns) == (2 * rows, 2 * columns)
    per_feature = 6  # pixels of a side
    white = make.pixels(np.full((height, width, 3), 255, np.uint8)).patches[:, :9].max(axis=1)
    tiles = (white[16:] > white.min()) | (white.max() == white.min())
    grid = tiles.reshape(rows, columns, 4, 4).transpose(0, 2, 1, 3).reshape(4 * rows, 4 * columns)
    in_rows, in_columns = (np.nonzero(grid.any(axis=axis))[0] * 3 / per_feature for axis in (1, 0))
    assert used.top - 1 < in_rows[0] and in_rows[-1] < used.bottom + 1
    assert used.left - 1 < in_columns[0] and in_columns[-1] < used.right + 1
    assert layout.features == 4 + (used.bottom - used.top) * (used.right - used.left + 1)


def test_layouts_are_of_one_size() -> None:
    """The layout depends on the size alone: a header is enough to count tokens."""
    layout: PictureLayout = processor(SMART).layout(60, 44)
    assert layout == processor(SMART).pixels(files.noise(44, 60)).layout
    assert hash(layout) == hash(processor(SMART).layout(60, 44))
