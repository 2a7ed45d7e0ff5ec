"""Checkpoints with a vision tower and random weights: a config for each kind, with odd sizes that all differ."""

import json
import re
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
    "qwen3-vl": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "text_config": {**_TEXT, "head_dim": 8, "rope_parameters": {"mrope_section": [2, 1, 1]}},
            "vision_config": {
                "depth": 4, "hidden_size": 20, "intermediate_size": 28, "num_heads": 5, "patch_size": 6,
                "num_position_embeddings": 49, "spatial_merge_size": 3, "out_hidden_size": 18, "in_channels": 3,
                "temporal_patch_size": 2, "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [0, 2, 3],
            },
            "image_token_id": 31,
        },
        _SMART,
        {"processor_class": "Qwen3VLProcessor"},
    ),
    "qwen25-vl": (
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "text_config": {**_TEXT, "rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 1]}},
            "vision_config": {
                "depth": 4, "hidden_size": 20, "intermediate_size": 28, "num_heads": 5, "patch_size": 6,
                "spatial_merge_size": 3, "out_hidden_size": 18, "in_channels": 3, "temporal_patch_size": 2,
                "hidden_act": "silu", "fullatt_block_indexes": [0, 3], "window_size": 36, "tokens_per_second": 2,
            },
            "image_token_id": 31,
        },
        {**_SMART, "min_pixels": 1296, "max_pixels": 16384, "size": {"shortest_edge": 1296, "longest_edge": 16384}},
        {"processor_class": "Qwen2_5_VLProcessor"},
    ),
    "lfm2-vl": (
        {
            "architectures": ["Lfm2VlForConditionalGeneration"],
            "text_config": {**_TEXT, "layer_types": ["conv", "full_attention", "conv"], "tie_word_embeddings": True},
            "vision_config": {
                "model_type": "siglip2_vision_model", "num_hidden_layers": 2, "hidden_size": 20,
                "intermediate_size": 28, "num_attention_heads": 5, "patch_size": 4, "num_patches": 49,
                "layer_norm_eps": 3e-4, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": False,
            },
            "downsample_factor": 3, "projector_hidden_size": 22, "projector_bias": True,
            "projector_use_layernorm": True, "projector_hidden_act": "gelu", "image_token_id": 31,
        },
        {
            **_PIXELS, "image_processor_type": "Lfm2VlImageProcessor", "resample": 2, "do_image_splitting": True,
            "do_pad": True, "downsample_factor": 3, "encoder_patch_size": 4, "max_image_tokens": 16,
            "min_image_tokens": 4, "max_num_patches": 144, "max_pixels_tolerance": 1.5, "max_tiles": 5, "min_tiles": 3,
            "tile_size": 48, "use_thumbnail": True, "size": {"height": 512, "width": 512},
            "return_row_col_info": False,
        },
        {"processor_class": "Lfm2VlProcessor"},
    ),
    "lfm3-vl": (
        {
            "architectures": ["Lfm3VlForConditionalGeneration"],
            "text_config": {
                **_TEXT, "layer_types": ["conv", "full_attention", "sliding_attention"], "head_dim": 8,
                "tie_word_embeddings": True, "sliding_window": 9,
            },
            "vision_config": {
                "num_hidden_layers": 3, "hidden_size": 24, "intermediate_size": 28, "num_attention_heads": 3,
                "num_key_value_heads": 1, "patch_size": 6, "layer_types": ["conv", "full_attention", "conv"],
                "conv_kernel_size": 5, "norm_eps": 3e-4, "spatial_merge_size": 3, "temporal_patch_size": 2,
                "in_channels": 3, "rope_parameters": {"rope_theta": 700.0},
            },
            "projector_hidden_size": 22, "projector_bias": True, "projector_hidden_act": "gelu", "image_token_id": 31,
        },
        _SMART,
        {"processor_class": "Lfm3VlProcessor"},
    ),
    "gemma3-vl": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {**_TEXT, "head_dim": 8, "sliding_window": 9},
            "vision_config": {
                "num_hidden_layers": 2, "hidden_size": 20, "intermediate_size": 28, "num_attention_heads": 5,
                "patch_size": 4, "image_size": 24, "layer_norm_eps": 3e-4, "hidden_act": "gelu_pytorch_tanh",
                "vision_use_head": False,
            },
            "mm_tokens_per_image": 4, "image_token_index": 31,
        },
        {
            **_PIXELS, "image_processor_type": "Gemma3ImageProcessor", "resample": 2, "do_pan_and_scan": True,
            "pan_and_scan_min_crop_size": 12, "pan_and_scan_max_num_crops": 3,
            "pan_and_scan_min_ratio_to_activate": 1.5, "size": {"height": 24, "width": 24},
        },
        {"processor_class": "Gemma3Processor", "image_seq_length": 4},
    ),
    "gemma4-vl": (
        {
            "architectures": ["Gemma4ForConditionalGeneration"],
            "text_config": {
                **_TEXT, "head_dim": 8, "sliding_window": 9, "hidden_size_per_layer_input": 0, "num_key_value_heads": 3,
                "global_head_dim": 8,
            },
            "vision_config": {
                "num_hidden_layers": 2, "hidden_size": 20, "intermediate_size": 28, "num_attention_heads": 5,
                "num_key_value_heads": 1, "head_dim": 8, "patch_size": 4, "pooling_kernel_size": 2,
                "position_embedding_size": 30, "rms_norm_eps": 3e-4, "standardize": True, "use_clipped_linears": True,
                "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
                "rope_parameters": {"rope_theta": 70.0, "rope_type": "axial"},
            },
            "image_token_id": 31,
        },
        {
            **_PIXELS, "image_processor_type": "Gemma4ImageProcessor", "resample": 3, "patch_size": 4,
            "pooling_kernel_size": 2, "max_soft_tokens": 70,
        },
        {"processor_class": "Gemma4Processor", "image_seq_length": 70},
    ),
    "granite4-vision": (
        {
            "architectures": ["Granite4VisionForConditionalGeneration"],
            "text_config": {**_TEXT, "num_hidden_layers": 5, "embedding_multiplier": 2.0},
            "vision_config": {
                "model_type": "siglip_vision_model", "num_hidden_layers": 3, "hidden_size": 20,
                "intermediate_size": 28, "num_attention_heads": 5, "patch_size": 4, "image_size": 24,
                "layer_norm_eps": 3e-4, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": False,
            },
            "deepstack_layer_map": [[2, 3], [-1, 0]], "spatial_target_layers": [4, 2], "spatial_vision_layer": -3,
            "downsample_rate": "1/2", "image_grid_pinpoints": [[24, 48], [48, 24]], "image_token_index": 31,
            "vision_feature_select_strategy": "full", "image_seq_length": 9, "vision_feature_layer": -2,
            "qformer_config": {
                "intermediate_size": 26, "layer_norm_eps": 1e-5, "num_hidden_layers": 1,
                "cross_attention_frequency": 1, "hidden_act": "gelu", "hidden_size": 20,
            },
        },
        {
            **_PIXELS, "image_processor_type": "LlavaNextImageProcessor", "resample": 3, "do_pad": True,
            "do_center_crop": True, "image_grid_pinpoints": [[24, 48], [48, 24]],
            "crop_size": {"height": 24, "width": 24}, "size": {"shortest_edge": 24},
        },
        {
            "processor_class": "Granite4VisionProcessor", "downsample_rate": "1/2", "patch_size": 4,
            "num_additional_image_tokens": 0, "vision_feature_select_strategy": "full",
        },
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
                values = rng.standard_normal(row.expected_of(i)).astype(np.float32)
                sign = np.float32(name.endswith("_max")) - np.float32(name.endswith("_min"))  # of clamps
                found[name] = sign * (1 + np.abs(values)) if sign else values + ("norm" in name or ".ln" in name)
    return _joined(found)


def _joined(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Queries, keys and values that are parts for convert/vision, as one tensor of the checkpoint."""
    joined = {name: x for name, x in found.items() if ".attn.q." not in name and not re.search(r"\.attn\.[kv]\.", name)}
    for name in found:
        if ".attn.q." in name:
            parts = [found[name.replace(".attn.q.", f".attn.{part}.")] for part in "qkv"]
            joined[name.replace(".attn.q.", ".attn.qkv.")] = np.concatenate(parts)
    return joined


def write(
    name: str,
    folder: Path,
    tokenizer: Path | None = None,
    *,
    vision: Mapping[str, Any] = MappingProxyType({}),
    picture: Mapping[str, Any] = MappingProxyType({}),
    outer: Mapping[str, Any] = MappingProxyType({}),
    wide: int = 0,
    **changes: Any,
) -> Path:
    """A checkpoint, with the tokenizer of another folder. Changed fields: vision: of vision_config; picture, outer: of
    preprocessor_config.json, processor_config.json; others: of config.json. Tensors fit the unchanged config, with a
    tower of width `wide`."""
    folder.mkdir(parents=True, exist_ok=True)
    config, *files = CONFIGS[name]
    if wide:
        config = {**config, "vision_config": {**config["vision_config"], "hidden_size": wide}}
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
