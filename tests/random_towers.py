"""Checkpoints with a vision tower and random weights: a config for each kind, with odd sizes that all differ."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import random_checkpoints
from safetensors.numpy import save_file

from hybrid.convert.checkpoint import Checkpoint
from hybrid.convert.vision import TOWERS, PictureConfig

_TEXT = {
    "vocab_size": 2023, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 3,
    "num_key_value_heads": 1, "max_position_embeddings": 64,
}  # fmt: skip
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-5, "head_dim": 16,
}  # fmt: skip
_PIXELS = {
    "do_resize": True, "do_rescale": True, "do_normalize": True, "do_convert_rgb": True, "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.25, 0.5], "image_std": [0.5, 0.5, 0.75],
}  # fmt: skip
_SMART = {
    **_PIXELS, "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 6, "merge_size": 3, "resample": 3,
    "temporal_patch_size": 2, "size": {"shortest_edge": 1296, "longest_edge": 16384},
}  # fmt: skip
# name -> config.json, preprocessor_config.json, processor_config.json
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "qwen35-vl": (
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "text_config": {
                **_TEXT, **_DELTA, "num_hidden_layers": 4, "rope_parameters": {"mrope_section": [2, 1, 1]},
            },
            "vision_config": {
                "depth": 2, "hidden_size": 20, "intermediate_size": 28, "num_heads": 5, "patch_size": 6,
                "num_position_embeddings": 49, "spatial_merge_size": 3, "out_hidden_size": 18, "in_channels": 3,
                "temporal_patch_size": 2, "hidden_act": "gelu_pytorch_tanh", "rope_parameters": {"rope_theta": 700.0},
            },
            "image_token_id": 31,
        },
        _SMART,
        {"processor_class": "Qwen3VLProcessor", "video_processor": {"fps": 2}},
    ),
    "smolvlm": (
        {
            "architectures": ["SmolVLMForConditionalGeneration"], "text_config": _TEXT, "scale_factor": 3,
            "vision_config": {
                "num_hidden_layers": 2, "hidden_size": 20, "intermediate_size": 28, "num_attention_heads": 5,
                "patch_size": 4, "image_size": 24, "layer_norm_eps": 3e-4, "hidden_act": "gelu_pytorch_tanh",
            },
            "image_token_id": 31, "pad_token_id": 2,
        },
        {
            **_PIXELS, "image_processor_type": "SmolVLMImageProcessor", "resample": 1, "do_image_splitting": True,
            "do_pad": True, "max_image_size": {"longest_edge": 24}, "size": {"longest_edge": 72},
        },
        {"processor_class": "SmolVLMProcessor", "image_seq_len": 4},
    ),
}  # fmt: skip


def tensors(folder: Path, seed: int = 3) -> dict[str, np.ndarray]:
    """Random f32 tensors of the tower of the folder's config, by the names that its class has in convert/vision."""
    checkpoint = Checkpoint(folder)
    tower = TOWERS[checkpoint.config.data["architectures"][0]]
    made = tower.read(PictureConfig.of(checkpoint, checkpoint.config), {})
    rng, found = np.random.default_rng(seed), {}
    for row in made.rows():
        for i, name in enumerate(row.sources):
            if name not in found:
                shape = row.expected_of(i)
                found[name] = rng.standard_normal(shape).astype(np.float32) + ("norm" in name or ".ln" in name)
    return found


def write(
    name: str,
    folder: Path,
    tokenizer: Path | None = None,
    *,
    vision: Mapping[str, Any] = MappingProxyType({}),
    picture: Mapping[str, Any] = MappingProxyType({}),
    outer: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Path:
    """A checkpoint, with the tokenizer of another folder. Changed fields: vision: of vision_config; picture, outer: of
    preprocessor_config.json, processor_config.json; others: of config.json. Tensors fit the unchanged config."""
    folder.mkdir(parents=True, exist_ok=True)
    config, *files = CONFIGS[name]
    _write_configs(folder, config, *files)
    save_file({**random_checkpoints.tensors(config), **tensors(folder)}, folder / "model.safetensors")
    config = {**config, "vision_config": {**config["vision_config"], **vision}, **changes}
    _write_configs(folder, config, {**files[0], **picture}, {**files[1], **outer})
    for path in tokenizer.glob("*token*.json") if tokenizer else ():
        shutil.copyfile(path, folder / path.name)
    return folder


def _write_configs(folder: Path, *contents: dict[str, Any]) -> None:
    for file, data in zip(("config", "preprocessor_config", "processor_config"), contents, strict=True):
        (folder / f"{file}.json").write_text(json.dumps(data))
