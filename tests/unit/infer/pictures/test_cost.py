"""Costs from headers against what is made of the pictures, and the memory that this takes."""

from typing import Any

import numpy as np
import picture_files as files
import pytest
import resident

from hybrid.infer.pictures.cost import PictureCost, cost, cost_of_size
from hybrid.infer.pictures.decode import PictureLimits, decode
from hybrid.infer.pictures.processors import processor
from hybrid.quant.ggml.errors import PictureError
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

SMART = processor(SmartResizeSettings.make(patch_size=16, min_pixels=65536, max_pixels=16777216))


def test_a_header_is_enough() -> None:
    """The size of a turned JPEG; its pixels are missing."""
    jpeg = files.with_segments(
        files.encoded(files.noise(300, 500), "JPEG"), files.segment(0xE1, b"Exif\0\0" + files.exif(6))
    )
    found = cost(jpeg, SMART)
    layout = SMART.pixels(decode(jpeg)).layout
    assert (found.width, found.height) == (layout.width, layout.height) == (300, 500)
    assert (found.features, found.n_patches) == (layout.features, layout.n_patches)
    start = jpeg.index(b"\xff\xda")
    assert cost(jpeg[: start + 20], SMART).features == found.features
    assert cost_of_size(SMART, 300, 500, len(jpeg)) == found


def test_refusals() -> None:
    png = files.encoded(files.noise(3, 900), "PNG")
    with pytest.raises(PictureError, match=r"^a.png has 900 x 3 pixels, expected at most 800 on a side"):
        cost(png, SMART, "a.png", PictureLimits(side=800))
    with pytest.raises(PictureError, match="a longer side of at most 200 times the shorter one"):
        cost(png, SMART)
    with pytest.raises(PictureError, match="is text"):
        cost(b"a cat", SMART)


def test_published_models() -> None:
    """Features of a photo of 2000 x 1500, which people know from their model cards."""
    makes = [
        SMART,
        processor(Idefics3Settings.make(patch_size=16, tile_size=512, longest_edge=2048, merge_size=4)),
        processor(Lfm2TilesSettings.make()),
        processor(Gemma3PictureSettings.make(image_size=896)),
    ]
    found = [cost_of_size(make, 2000, 1500) for make in makes]
    assert [one.features for one in found] == [62 * 47, 13 * 64, 6 * 256 + 234, 256]
    assert [one.n_patches for one in found] == [4 * 62 * 47, 13 * 1024, 6 * 1024 + 4 * 234, 4096]


@resident.needed
@pytest.mark.parametrize(
    "settings",
    [
        SmartResizeSettings.make(patch_size=16, min_pixels=65536, max_pixels=16777216),
        Lfm2TilesSettings.make(),
        Idefics3Settings.make(patch_size=16, tile_size=512, longest_edge=2048),
    ],
)
def test_memory_is_not_underestimated(settings: Any) -> None:
    rgb = np.zeros((1800, 2500, 3), np.uint8)
    rgb[::7, ::5] = 200
    data = files.encoded(rgb, "PNG", compress_level=1)
    make = processor(settings)
    expected: PictureCost = cost(data, make)
    make.pixels(files.noise(20, 30))  # compiled before
    with resident.Watch() as watch:
        make.pixels(decode(data))
    print(f"{watch.growth / 1e6:.0f} MB, expected at most {expected.nbytes / 1e6:.0f}")
    assert watch.growth < expected.nbytes + (8 << 20)
