"""Settings of processors: written and read again, defaults, and values with which no picture can be processed."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.vision import PROCESSORS, picture_settings
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import CLIP_STD, PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings
from hybrid.quant.ggml.writer import GGUFWriter

KINDS = sorted(set(PROCESSORS.values()), key=lambda kind: kind.__name__)

# settings that differ from the defaults in every field, and that fit together
OTHERS: dict[type[PictureSettings], dict[str, Any]] = {
    SmartResizeSettings: {
        "patch_size": 5, "merge_size": 3, "temporal_patch_size": 4, "min_pixels": 700, "max_pixels": 7000,
    },
    Lfm2TilesSettings: {
        "patch_size": 5, "merge_size": 3, "min_tiles": 3, "max_tiles": 7, "tile_size": 30, "min_tokens": 2,
        "max_tokens": 9, "tolerance": 1.5, "use_tiles": False, "use_thumbnail": False, "use_marks": False,
        "start": "<a>", "end": "<b>", "thumbnail": "<c>",
    },
    Gemma3PictureSettings: {
        "patch_size": 5, "image_size": 60, "pool": 3, "pan_and_scan": True, "min_crop_size": 7, "max_crops": 5,
        "min_ratio": 1.5, "start": "<a>", "end": "<b>",
    },
    Idefics3Settings: {
        "patch_size": 5, "tile_size": 30, "longest_edge": 90, "merge_size": 3, "use_tiles": False, "around": "<a>",
        "whole": "<b>",
    },
    LlavaNextSettings: {
        "patch_size": 5, "tile_size": 60, "sizes": (60, 120, 180, 60), "query_side": 2, "window_side": 4,
    },
    Gemma4PictureSettings: {"patch_size": 5, "pool": 2, "max_tokens": 70, "start": "<a>", "end": "<b>"},
}  # fmt: skip
COMMON = {"image_mean": (0.25, 0.5, 0.125), "image_std": (0.5, 0.25, 2.0), "resample": "nearest", "image_token": "<x>"}


def file_with(path: Path, **pairs: Any) -> GGUFFile:
    """pairs: dots of keys are written as double underscores."""
    with GGUFWriter(path, "clip") as w:
        for key, value in pairs.items():
            if value is not None:
                w.add(key.replace("__", "."), value)
    return GGUFFile.open(path)


def written(path: Path, settings: PictureSettings, **more: Any) -> GGUFFile:
    (name, *_) = (name for name, kind in PROCESSORS.items() if kind is type(settings))
    pairs = {key.replace(".", "__"): value for key, value in settings.pairs()}
    return file_with(path, **{"clip__projector_type": name, **pairs, **more})


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_comes_back(kind: type[PictureSettings], tmp_path: Path) -> None:
    values = {**COMMON, **OTHERS[kind]}
    defaults = kind.defaults()
    assert set(values) == {field.name for field in dataclasses.fields(kind)}, "OTHERS has every field"
    assert not [name for name in values if name in defaults and values[name] == defaults[name]]
    settings = kind(**values)
    assert settings.mistake() == ""
    with written(tmp_path / "a.gguf", settings) as file:
        assert picture_settings(file) == settings


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_our_keys(kind: type[PictureSettings], tmp_path: Path) -> None:
    needed = {"tile_size": 336} if kind is LlavaNextSettings else {}
    settings = kind.make(**needed)
    assert settings.mistake() == ""
    assert not [key for key, _ in settings.pairs() if key.startswith("hybrid.")], "the defaults need no key of ours"
    with written(tmp_path / "a.gguf", settings) as file:
        read = picture_settings(file)
    assert dataclasses.replace(read, image_mean=settings.image_mean, image_std=settings.image_std) == settings
    np.testing.assert_array_equal(np.float32(read.image_std), np.float32(settings.image_std))


def test_defaults_are_of_each_class() -> None:
    assert SmartResizeSettings.make().image_std == CLIP_STD
    assert Lfm2TilesSettings.make().resample == "bilinear"
    assert Idefics3Settings.make().resample == "lanczos"
    assert Gemma4PictureSettings.make().image_std == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("projector", "least", "most"),
    [("qwen2.5vl_merger", 56**2, 16384 * 28**2), ("qwen3vl_merger", 256**2, 4096**2), ("lfm3", 56**2, 1280 * 28**2)],
)
def test_limits_that_llama_cpp_leaves_out(projector: str, least: int, most: int, tmp_path: Path) -> None:
    """Each is read alone where it is there."""
    for pair in ({}, {"clip__vision__image_min_pixels": 5000}, {"clip__vision__image_max_pixels": 500_000}):
        with file_with(tmp_path / "a.gguf", clip__projector_type=projector, **pair) as file:
            settings = picture_settings(file)
        assert isinstance(settings, SmartResizeSettings)
        assert settings.min_pixels == pair.get("clip__vision__image_min_pixels", least)
        assert settings.max_pixels == pair.get("clip__vision__image_max_pixels", most)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SmartResizeSettings.make(image_mean=(0.5,)), "1 means and 3 deviations"),
        (SmartResizeSettings.make(image_std=(0.5, 0.0, 0.5)), "deviation of a colour is 0"),
        (SmartResizeSettings.make(resample="box\n"), r"resample is box\\n, expected one of nearest, lanczos"),
        (SmartResizeSettings.make(patch_size=10000), "patches of 10000 pixels"),
        (SmartResizeSettings.make(patch_size=100, merge_size=100), "a feature is 10000 pixels"),
        (SmartResizeSettings.make(min_pixels=9, max_pixels=8), "image_min_pixels = 9 is larger"),
        (Lfm2TilesSettings.make(min_tiles=3, max_tiles=2), "3 to 2 tiles"),
        (Lfm2TilesSettings.make(max_tiles=2000), "2 to 2000 tiles"),
        (Lfm2TilesSettings.make(min_tokens=3, max_tokens=2), "min_image_tokens = 3 is larger"),
        (Lfm2TilesSettings.make(tile_size=500), "tile_size is 500 pixels, expected a multiple of 32"),
        (Gemma3PictureSettings.make(image_size=240), "image_size is 240 pixels, expected a multiple of 56"),
        (Gemma3PictureSettings.make(max_crops=5000), "5000 crops"),
        (
            Gemma3PictureSettings.make(image_size=4032, max_crops=10, pan_and_scan=True),
            "becomes up to 178827264 pixels",
        ),
        (
            SmartResizeSettings.make(min_pixels=2**25 + 1, max_pixels=2**30),
            "becomes up to 67108866 pixels, expected at",
        ),
        (Lfm2TilesSettings.make(tile_size=4096, max_tiles=5), "becomes up to 84148224 pixels"),
        (Idefics3Settings.make(patch_size=16, tile_size=8192), "becomes up to 134217728 pixels"),
        (LlavaNextSettings.make(tile_size=336, sizes=(8400, 8400)), "becomes up to 70672896 pixels"),
        (Idefics3Settings.make(tile_size=380), "image_size is 380 pixels, expected a multiple of 28"),
        (LlavaNextSettings.make(tile_size=336, sizes=(1, 2, 3)), "has 3 values, expected pairs"),
        (LlavaNextSettings.make(tile_size=336, sizes=(336, 300)), "no multiple of 336"),
        (LlavaNextSettings.make(tile_size=336, query_side=3, window_side=2), "queries of 3 a side in a window of 2"),
        (Gemma4PictureSettings.make(max_tokens=30000), "becomes up to 69120000 pixels"),
        (Gemma4PictureSettings.make(patch_size=100, pool=100), "becomes up to 28000000000 pixels"),
    ],
)
def test_settings_that_do_not_fit(settings: PictureSettings, expected: str, tmp_path: Path) -> None:
    with written(tmp_path / "a.gguf", settings) as file, pytest.raises(FormatError, match=expected) as error:
        picture_settings(file)
    assert "\n" not in str(error.value) and str(error.value).startswith("a.gguf: ")


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ({"clip__vision__patch_size": "16"}, "clip.vision.patch_size = '16', expected an integer of at least 1"),
        ({"clip__vision__patch_size": 0}, "patch_size = 0, expected an integer of at least 1"),
        ({"clip__vision__image_mean": 0.5}, "image_mean = 0.5, expected a list of numbers"),
        ({"clip__vision__image_mean": ["a"]}, "image_mean = .*expected a list of numbers"),
        ({"clip__vision__image_mean": [0.5, float("nan"), 0.5]}, "image_mean = nan, expected a finite number"),
        ({"hybrid__vision__resample": 3}, "hybrid.vision.resample = 3, expected a string"),
    ],
)
def test_values_of_another_kind(pair: dict[str, Any], expected: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.gguf", SmartResizeSettings.make(), **pair)
    with file, pytest.raises(FormatError, match=expected):
        picture_settings(file)


@pytest.mark.parametrize("kind", ["ldp", None, 3])
def test_projectors_without_a_processor(kind: Any, tmp_path: Path) -> None:
    file = file_with(tmp_path / "a.gguf", clip__projector_type=kind)
    with file, pytest.raises(UnsupportedError, match=r"clip.projector_type is .*expected one of qwen2.5vl_merger") as e:
        picture_settings(file)
    assert "\n" not in str(e.value)


def test_a_file_of_several_towers(tmp_path: Path) -> None:
    """Gemma 4's has one for sound as well: its projector type is under `vision`."""
    file = file_with(tmp_path / "a.gguf", clip__vision__projector_type="gemma4v", clip__vision__patch_size=16)
    with file:
        assert isinstance(picture_settings(file), Gemma4PictureSettings)
