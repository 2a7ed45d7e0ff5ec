"""Sizes and features of 256 pictures of odd sizes, with settings of published models, as transformers computes them.

tests/golden/pictures/make.py writes the expected ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid.infer.pictures.pixels import PictureProcessor
from hybrid.infer.pictures.processors import processor
from hybrid.quant.ggml.errors import PictureError
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

ROWS = json.loads((Path(__file__).parent / "pictures" / "sizes.json").read_text())
PINPOINTS = (768, 384, 384, 768, 768, 768, 1152, 384, 384, 1152, 1536, 384, 384, 1536)  # width, height


def whole(make: PictureProcessor[Any], width: int, height: int) -> list[int]:
    """[height, width] of the last tile."""
    tile, p = make.layout(width, height).tiles[-1], make.settings.patch_size
    return [tile.rows * p, tile.columns * p]


def smolvlm(make: PictureProcessor[Any], width: int, height: int) -> list[int]:
    layout = make.layout(width, height)
    return [len(layout.tiles) if layout.grid != (0, 0) else 0, *layout.grid]


def lfm2(make: PictureProcessor[Any], width: int, height: int) -> list[int]:
    return [*whole(make, width, height), *make.layout(width, height).grid]


def gemma3(make: PictureProcessor[Any], width: int, height: int) -> list[list[int]]:
    """Sizes of the crops."""
    rows, columns = make.layout(width, height).grid
    if not rows:
        return []
    h, w = -(-height // rows), -(-width // columns)
    return [[min(h, height - h * r), min(w, width - w * c)] for r in range(rows) for c in range(columns)]


def granite(make: PictureProcessor[Any], width: int, height: int) -> list[int]:
    layout = make.layout(width, height)
    return [layout.grid[0] * 384, layout.grid[1] * 384, layout.features]


KINDS: dict[str, tuple[PictureSettings, Callable[[PictureProcessor[Any], int, int], Any]]] = {
    "qwen3.5": (SmartResizeSettings.make(patch_size=16, min_pixels=65536, max_pixels=16777216), whole),
    "qwen2.5": (SmartResizeSettings.make(), whole),
    "smolvlm": (Idefics3Settings.make(patch_size=16, tile_size=512, longest_edge=2048), smolvlm),
    "lfm2": (Lfm2TilesSettings.make(), lfm2),
    "gemma3": (Gemma3PictureSettings.make(pan_and_scan=True), gemma3),
    "gemma4": (Gemma4PictureSettings.make(), whole),
    "granite": (
        LlavaNextSettings.make(patch_size=16, tile_size=384, query_side=1, window_side=2, sizes=PINPOINTS), granite
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_sizes(name: str) -> None:
    settings, found = KINDS[name]
    make = processor(settings)
    wrong = []
    for row in ROWS:
        height, width = row["size"]
        try:
            value = found(make, width, height)
        except PictureError:
            value = None
        if value != row[name]:
            wrong.append(f"{width} x {height}: {value}, expected {row[name]}")
    assert not wrong
    assert len(ROWS) == 256 and len({json.dumps(row[name]) for row in ROWS}) > 4
