"""Qwen3-Next and Qwen3.5: tensors that are split or reordered, and configs of two kinds."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, plan, verify
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def written(tmp_path: Path, data_dir: Path) -> Callable[..., Path]:
    """written(name, **changes) -> folder of the checkpoint, with a tokenizer."""

    def make(name: str, **changes: object) -> Path:
        folder = random_checkpoints.write({**CONFIGS[name], **changes}, tmp_path / f"{name}-{len(changes)}")
        (folder / "tokenizer.json").write_bytes((data_dir / "checkpoints/mamba-bf16/tokenizer.json").read_bytes())
        return folder

    return make


def read(folder: Path) -> dict[str, np.ndarray]:
    path = convert(folder, folder / "o.gguf", outtype="f32").output
    verify(folder, path)
    with GGUFFile.open(path) as file:
        return {name: file.f32(name).copy() for name in file.tensors}


def test_qkvz_is_taken_apart(written: Callable[..., Path]) -> None:
    """Each key head has q and k (24 rows each), then v and z of three heads (72 rows each)."""
    folder = written("qwen3next")
    pieces = load_file(folder / "model.safetensors")
    name = "model.layers.0.linear_attn.in_proj_qkvz.weight"
    parts = sorted((key for key in pieces if key.startswith(name + ".")), key=lambda key: int(key.rpartition(".")[2]))
    whole = np.concatenate([pieces[key] for key in parts])  # as Qwen publishes it
    rest = {key: value for key, value in pieces.items() if not key.startswith(name + ".")}
    save_file({**rest, name: whole}, folder / "model.safetensors")
    tensors = read(folder)
    heads = whole.reshape(2, 192, 96)
    q, k, v, z = (heads[:, a:b].reshape(-1, 96) for a, b in ((0, 24), (24, 48), (48, 120), (120, 192)))
    np.testing.assert_array_equal(tensors["blk.0.attn_qkv.weight"], np.concatenate([q, k, v]))
    np.testing.assert_array_equal(tensors["blk.0.attn_gate.weight"], z)
    norm = rest["model.layers.0.input_layernorm.weight"].astype(np.float64) + 1
    np.testing.assert_array_equal(tensors["blk.0.attn_norm.weight"], norm.astype(np.float32))
    np.testing.assert_array_equal(tensors["blk.0.ssm_norm.weight"], rest["model.layers.0.linear_attn.norm.weight"])
    assert tensors["blk.0.ffn_gate_inp_shexp.weight"].shape == (1, 96)


def test_heads_that_share_keys_are_dealt_out(written: Callable[..., Path]) -> None:
    """Heads 0, 1, 2 share key head 0, and 3, 4, 5 key head 1: their new order is 0, 3, 1, 4, 2, 5."""
    folder = written("qwen35")
    source = load_file(folder / "model.safetensors")
    tensors = read(folder)
    order, hf = [0, 3, 1, 4, 2, 5], "model.layers.2.linear_attn."
    z = source[hf + "in_proj_z.weight"].reshape(6, 24, 96)
    np.testing.assert_array_equal(tensors["blk.2.attn_gate.weight"].reshape(6, 24, 96), z[order])
    np.testing.assert_array_equal(tensors["blk.2.ssm_beta.weight"], source[hf + "in_proj_b.weight"][order])
    np.testing.assert_array_equal(tensors["blk.2.ssm_dt.bias"], source[hf + "dt_bias"][order])
    decay = -np.exp(source[hf + "A_log"].astype(np.float64))[order]
    np.testing.assert_array_equal(tensors["blk.2.ssm_a"], decay.astype(np.float32))
    qkv = source[hf + "in_proj_qkv.weight"]
    np.testing.assert_array_equal(tensors["blk.2.attn_qkv.weight"][:96], qkv[:96])
    np.testing.assert_array_equal(
        tensors["blk.2.attn_qkv.weight"][96:].reshape(6, 24, 96), qkv[96:].reshape(6, 24, 96)[order]
    )
    out = source[hf + "out_proj.weight"].reshape(96, 6, 24)
    np.testing.assert_array_equal(tensors["blk.2.ssm_out.weight"].reshape(96, 6, 24), out[:, order])
    taps = source[hf + "conv1d.weight"][96:, 0].reshape(6, 24, 3)
    np.testing.assert_array_equal(tensors["blk.2.ssm_conv1d.weight"][96:].reshape(6, 24, 3), taps[order])


def test_the_text_part_of_a_model_that_sees(written: Callable[..., Path]) -> None:
    """Settings in text_config, other names, stacked experts and parts that are left out give the same file."""
    plain = written("qwen35moe")
    expected = read(plain)
    config = {key: value for key, value in CONFIGS["qwen35moe"].items() if key != "architectures"}
    folder = written("qwen35moe", vision_config={})
    more = {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 512}
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": {**config, **more}})
    )
    source = load_file(plain / "model.safetensors")
    tensors = {
        key.replace("model.", "model.language_model.", 1): x for key, x in source.items() if "experts." not in key
    }
    for i in range(4):
        hf, to = f"model.layers.{i}.mlp.experts.", f"model.language_model.layers.{i}.mlp.experts."
        halves = [
            np.stack([source[f"{hf}{e}.{part}_proj.weight"] for e in range(5)]) for part in ("gate", "up", "down")
        ]
        tensors[to + "gate_up_proj"] = np.concatenate(halves[:2], axis=1)
        tensors[to + "down_proj"] = halves[2]
    tensors |= {"model.visual.patch.weight": np.ones((3, 3), np.float32), "mtp.norm.weight": np.ones(3, np.float32)}
    save_file(tensors, folder / "model.safetensors")
    of_text = read(folder)
    assert of_text.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(of_text[name], values, err_msg=name)
    assert any("left out" in note and "mtp.norm.weight" in note for note in plan(folder).notes)


@pytest.mark.parametrize(
    ("name", "change", "kind", "message"),
    [
        ("qwen3next", {"linear_num_value_heads": 5}, CheckpointError, "linear_num_value_heads = 5.*a multiple of"),
        ("qwen3next", {"num_experts_per_tok": 6}, CheckpointError, "num_experts_per_tok = 6.*from 1 to 5"),
        ("qwen3next", {"mlp_only_layers": 3}, CheckpointError, "mlp_only_layers = 3.*numbers of layers"),
        ("qwen3next", {"attn_output_gate": False}, UnsupportedError, "attn_output_gate = false is not supported"),
        ("qwen3next", {"layer_types": ["full_attention"]}, CheckpointError, "layer_types = .*4 times linear_attention"),
        (
            "qwen35",
            {
                "num_experts": 3,
                "num_experts_per_tok": 1,
                "moe_intermediate_size": 8,
                "shared_expert_intermediate_size": 8,
            },
            UnsupportedError,
            "num_experts = 3 does not fit",
        ),
        ("qwen35", {"rope_parameters": {"mrope_section": [1.5]}}, CheckpointError, "mrope_section = .*up to four"),
    ],
)
def test_errors(name: str, change: dict, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        random_checkpoints.family_for({**CONFIGS[name], "vocab_size": 8, **change})
