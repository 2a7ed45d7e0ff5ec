"""Conversion of ZAYA1's tensors and settings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import save_file

from hybrid.convert import convert
from hybrid.convert.plan import prepare
from hybrid.quant.ggml.reader import GGUFFile


def keys(name: str, **change: Any) -> dict[str, Any]:
    family = random_checkpoints.family_for({"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change})
    return dict(family.keys(0))  # type: ignore[arg-type]


@pytest.fixture
def converted(tmp_path: Path, data_dir: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The checkpoint's tensors and the file's; balancing biases end in 0.75, not in -1."""
    folder = random_checkpoints.write(CONFIGS["zaya"], tmp_path / "model")
    source = random_checkpoints.tensors(json.loads((folder / "config.json").read_text()))
    for name in source:
        if name.endswith("balancing_biases"):
            source[name][-1] = 0.75
    save_file(source, folder / "model.safetensors")
    convert(folder, tmp_path / "f32.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(tmp_path / "f32.gguf") as gguf:
        return source, {name: np.array(gguf.f32(name)) for name in gguf.tensors}


def test_tensors(converted: Any) -> None:
    source, got = converted
    p, blk = "model.layers.1.", "blk.1."
    v = [source[f"{p}self_attn.qkv_proj.v_proj_{part}.weight"] for part in ("current", "delayed")]
    np.testing.assert_array_equal(got[blk + "attn_v.weight"], np.concatenate(v))
    grouped = source[p + "self_attn.qkv_proj.conv_qk_grouped.weight"]  # [channel, input, tap]
    matrix = got[blk + "attn_conv.weight"]
    assert matrix.shape == (8, 20, 80)
    for head, row, tap in ((0, 0, 0), (3, 7, 2), (7, 19, 3)):
        np.testing.assert_array_equal(matrix[head, row, 20 * tap : 20 * tap + 20], grouped[20 * head + row, :, tap])
    up = np.stack([source[f"{p}mlp.experts.gate_up_proj.{2 * e + 1}"] for e in range(3)])
    np.testing.assert_array_equal(got[blk + "ffn_up_exps.weight"], up)
    assert "blk.0.ffn_router_carry.weight" not in got
    assert blk + "ffn_router_carry.weight" in got


def test_the_last_bias_is_what_transformers_makes_it(converted: Any) -> None:
    source, got = converted
    for i in range(3):
        biases = source[f"model.layers.{i}.mlp.gate.balancing_biases"]
        np.testing.assert_array_equal(got[f"blk.{i}.exp_probs_b.bias"], [*biases[:-1], -1.0])


def test_keys_of_layers() -> None:
    plain, mixed = keys("zaya"), keys("zaya-window")
    assert not {key for key in plain if key.endswith("_swa") or "sliding_window" in key}
    assert (plain["rope.freq_base"], plain["rope.dimension_count"]) == (1e5, 12)
    # for a config without rope_parameters
    assert (mixed["rope.freq_base"], mixed["rope.dimension_count"]) == (5e6, 12)
    assert (mixed["rope.freq_base_swa"], mixed["rope.dimension_count_swa"]) == (1e4, 12)
    assert mixed["attention.sliding_window"] == 11
    assert mixed["attention.sliding_window_pattern"] == [True, False, True]
    kinds = {kind: {"rope_theta": theta} for kind, theta in (("hybrid", 7.0), ("hybrid_sliding", 8.0))}
    local = keys("zaya-window", layer_types=["hybrid_sliding"] * 3, rope_parameters=kinds)
    assert local["rope.freq_base"] == local["rope.freq_base_swa"] == 8.0
    assert local["rope.dimension_count"] == 24


def test_a_config_that_says_nothing_of_heads(tmp_path: Path) -> None:
    """The defaults do not depend on the model's width."""
    sizes = keys("zaya", head_dim=None, num_attention_heads=None, num_key_value_heads=None)
    assert (sizes["attention.head_count"], sizes["attention.head_count_kv"], sizes["attention.key_length"]) == (
        8,
        2,
        128,
    )


def test_the_type_of_rope_beside_the_kinds_of_layers_is_no_unknown_field(tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["zaya"], tmp_path / "model")
    assert "rope_type" in json.loads((folder / "config.json").read_text())["rope_parameters"]
    assert not [note for note in prepare(folder, with_vocabulary=False).plan.notes if "rope_type" in note]
