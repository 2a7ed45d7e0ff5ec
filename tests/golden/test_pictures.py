"""Pictures of the vision-language checkpoints: pixels, tokens and positions, each equal to transformers'.

Pixels are compared to the bit: the resize has torchvision's weights and rounding.
"""

import json
from collections.abc import Callable
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import read_vocabulary
from hybrid.infer.pictures.decode import decode
from hybrid.infer.pictures.pixels import PictureProcessor, Pixels
from hybrid.infer.pictures.placeholders import expanded, mrope_positions, places
from hybrid.infer.pictures.processors import processor
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import RESAMPLES, PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings
from hybrid.quant.ggml.writer import GGUFWriter

M_ROPE = ("qwen35-vl", "qwen3-vl", "qwen25-vl")
NAMES = (*M_ROPE, "smolvlm", "lfm2-vl", "gemma3-vl", "lfm3-vl", "gemma4-vl", "granite4-vision")


@pytest.fixture(scope="session")
def folder(shared_dir: Path) -> Callable[[str], Path]:
    return lambda name: shared_dir / "checkpoints" / name


@cache
def settings(folder: Path) -> PictureSettings:
    """Settings from a folder's configs, by the tables of the settings' docstrings."""
    config, own, prompt = (
        json.loads((folder / name).read_text())
        for name in ("config.json", "preprocessor_config.json", "processor_config.json")
    )
    patch = config["vision_config"]["patch_size"]
    common = {
        "image_mean": tuple(own["image_mean"]), "image_std": tuple(own["image_std"]),
        "resample": RESAMPLES[own["resample"]], "patch_size": own.get("patch_size", patch),
    }  # fmt: skip
    match own["image_processor_type"]:
        case "Qwen2VLImageProcessor":
            sizes = {"min_pixels": own["size"]["shortest_edge"], "max_pixels": own["size"]["longest_edge"]}
            frames = {"temporal_patch_size": own["temporal_patch_size"]}
            return SmartResizeSettings.make(**common, **sizes, **frames, merge_size=own["merge_size"])
        case "Lfm2VlImageProcessor":
            same = {name: own[name] for name in ("min_tiles", "max_tiles", "tile_size", "use_thumbnail")}
            tokens = {"min_tokens": own["min_image_tokens"], "max_tokens": own["max_image_tokens"]}
            tolerance = {"tolerance": own["max_pixels_tolerance"]}
            return Lfm2TilesSettings.make(**common, **same, **tokens, **tolerance, merge_size=own["downsample_factor"])
        case "Gemma3ImageProcessor":
            side = own["size"]["height"]
            pool = side // patch // isqrt(prompt["image_seq_length"])
            return Gemma3PictureSettings.make(**common, image_size=side, pool=pool)
        case "SmolVLMImageProcessor":
            sizes = {"tile_size": own["max_image_size"]["longest_edge"], "longest_edge": own["size"]["longest_edge"]}
            return Idefics3Settings.make(**common, **sizes, merge_size=config["scale_factor"])
        case "LlavaNextImageProcessor":
            query, window = map(int, config["downsample_rate"].split("/"))
            sizes = {"sizes": tuple(side for h, w in own["image_grid_pinpoints"] for side in (w, h))}
            tile = own["crop_size"]["height"]
            return LlavaNextSettings.make(**common, **sizes, tile_size=tile, query_side=query, window_side=window)
        case "Gemma4ImageProcessor":
            more = {"pool": own["pooling_kernel_size"], "max_tokens": own["max_soft_tokens"]}
            return Gemma4PictureSettings.make(**common, **more)
    raise AssertionError(own["image_processor_type"])


def made(folder: Path, image: str) -> Pixels:
    return processor(settings(folder)).pixels(decode((folder / "golden" / "images" / image).read_bytes()))


def expected_patches(golden: Any, make: PictureProcessor[Any]) -> np.ndarray:
    """The golden's pixel_values without padding, as one list of patches."""
    values = golden["pixel_values"]
    if values.shape[-1] == values.shape[-2] and values.ndim > 3:  # whole tiles
        p = make.settings.patch_size
        n = values.shape[-1] // p
        return values.reshape(-1, 3, n, p, n, p).transpose(0, 2, 4, 1, 3, 5).reshape(-1, make.patch_dim)
    if "pixel_attention_mask" in golden:
        return values[golden["pixel_attention_mask"].astype(bool)]
    if "image_position_ids" in golden:
        return values[(golden["image_position_ids"] >= 0).all(-1)]
    return values


@pytest.mark.shared
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_pixels(name: str, k: int, folder: Callable[[str], Path]) -> None:
    at = folder(name)
    found, make = made(at, f"image_{k}.png"), processor(settings(at))
    with np.load(at / "golden" / f"image_{k}.npz") as golden:
        np.testing.assert_array_equal(found.patches, expected_patches(golden, make))
        features = golden["features" if "features" in golden else "features_layer0"]
        assert found.layout.features == len(features)
        if "image_grid_thw" in golden:
            (tile,) = found.layout.tiles
            assert golden["image_grid_thw"].tolist() == [[1, tile.rows, tile.columns]]
        if "spatial_shapes" in golden:
            assert golden["spatial_shapes"].tolist() == [[tile.rows, tile.columns] for tile in found.layout.tiles]
        if "image_rows" in golden:
            rows, columns = found.layout.grid if found.layout.grid != (0, 0) else (1, 1)
            assert (golden["image_rows"].tolist(), golden["image_cols"].tolist()) == ([rows], [columns])
        if "rows" in golden:
            assert (golden["rows"].item(), golden["cols"].item()) == found.layout.grid


def tokenizer(folder: Path, path: Path) -> Tokenizer:
    """From a file with the vocabulary alone."""
    config = Config.read(folder / "config.json")
    text = json.loads((folder / "config.json").read_text())["text_config"]
    tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    n_vocab = max(text["vocab_size"], *(token["id"] + 1 for token in tokens))
    with GGUFWriter(path, "llama") as w:
        for key, value, kind in read_vocabulary(folder, config, n_vocab).key_values():
            w.add(key, value, kind)
    with GGUFFile.open(path) as file:
        return load_tokenizer(file)


@pytest.mark.shared
@pytest.mark.parametrize("prompt", ["img1", "img2"])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_positions(name: str, prompt: str, folder: Callable[[str], Path], tmp_path: Path) -> None:
    at = folder(name)
    golden = json.loads((at / "golden" / "prompts.json").read_text())[prompt]
    layouts = [made(at, image).layout for image in golden["images"]]
    make, encoder = processor(settings(at)), tokenizer(at, tmp_path / "vocabulary.gguf")

    ids = rendered_ids(encoder, expanded(golden["text"], make.placeholder, layouts))
    assert ids == golden["ids"]
    image_token = encoder.token(make.settings.image_token)
    assert image_token is not None
    found = places(ids, image_token, layouts)
    with np.load(at / "golden" / "logits.npz") as logits:
        if f"{prompt}_image_token_mask" in logits:
            mask = logits[f"{prompt}_image_token_mask"].astype(bool)
            assert np.nonzero(mask)[0].tolist() == [i for place in found for i in place.at]
        if name not in M_ROPE:
            return
        (tiles,) = zip(*(layout.tiles for layout in layouts), strict=True)
        runs = [(place.start, t.feature_rows, t.feature_columns) for place, t in zip(found, tiles, strict=True)]
        positions, delta = mrope_positions(len(ids), runs)
        np.testing.assert_array_equal(positions, logits[f"{prompt}_position_ids"])
        assert delta == golden["rope_delta"]
