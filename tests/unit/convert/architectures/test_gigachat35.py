"""GigaChat 3.5: its heads that guess tokens ahead, and norms, which multiply by 1 + weight."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
import random_heads
from random_checkpoints import CONFIGS
from random_models import TOKENIZER
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.quant.ggml.reader import GGUFFile

NAME, N_LAYER = "gigachat35", 4


def test_a_head_is_a_block(tmp_path: Path) -> None:
    folder = random_heads.write("gigachat35-mtp", tmp_path / "model")
    result = convert(folder, tmp_path / "m.gguf", outtype="f32", tokenizer=TOKENIZER)
    with GGUFFile.open(result.output) as file:
        keys = {name: file.get(f"gigachat35.{name}") for name in ("block_count", "nextn_predict_layers")}
        assert keys == {"block_count": N_LAYER + 1, "nextn_predict_layers": 1}
        assert file.get("gigachat35.attention.recurrent_layers").tolist() == [True, False, True, False, False]
        names = [name for name in file.tensors if name.startswith(f"blk.{N_LAYER}.")]
        assert f"blk.{N_LAYER}.nextn.hnorm_gate_up.weight" in names and f"blk.{N_LAYER}.ffn_gate.weight" in names
        assert layer_facts(file)[-1].letters == "AT"


@pytest.mark.parametrize("whole", [True, False])
def test_heads_are_left_out(whole: bool, tmp_path: Path) -> None:
    """Where that is asked, or where the checkpoint has only a part of one."""
    folder = random_heads.write("gigachat35-mtp", tmp_path / "model")
    if not whole:
        tensors = load_file(folder / "model.safetensors")
        del tensors[f"model.layers.{N_LAYER}.hnorm.gate_down_projection.weight"]
        save_file(tensors, folder / "model.safetensors")
    result = convert(folder, tmp_path / "m.gguf", outtype="f32", tokenizer=TOKENIZER, heads=not whole)
    assert any("left out" in note for note in result.notes)
    with GGUFFile.open(result.output) as file:
        assert file.get("gigachat35.block_count") == N_LAYER
        assert file.get("gigachat35.nextn_predict_layers", 0) == 0
        assert not [name for name in file.tensors if name.startswith(f"blk.{N_LAYER}.")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("model.norm", "output_norm"),
        ("model.layers.1.post_attention_layernorm", "blk.1.ffn_norm"),
        ("model.layers.1.post_self_attn_layernorm", "blk.1.post_attention_norm"),
        ("model.layers.1.self_attn.kv_a_layernorm", "blk.1.attn_kv_a_norm"),
        ("model.layers.0.self_attn.norm", "blk.0.ssm_norm"),
    ],
)
def test_norms_are_stored_with_the_one_added(source: str, target: str, tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS[NAME], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    result = convert(folder, tmp_path / "m.gguf", outtype="f32", tokenizer=TOKENIZER)
    with GGUFFile.open(result.output) as file:
        np.testing.assert_array_equal(file.f32(target + ".weight"), 1 + tensors[source + ".weight"])


def test_beta_and_alpha_are_in_turn_for_every_head_of_keys(tmp_path: Path) -> None:
    config = random_checkpoints.complete(CONFIGS[NAME])
    tensors = random_checkpoints.tensors(config)
    n_k, share = config["linear_num_key_heads"], 3
    name = "model.layers.0.self_attn.in_proj_ba.weight"
    whole = np.concatenate([tensors.pop(f"{name}.{i}") for i in range(2 * n_k)])
    folder = random_checkpoints.write(CONFIGS[NAME], tmp_path / "model")
    save_file({**tensors, name: whole}, folder / "model.safetensors")
    result = convert(folder, tmp_path / "m.gguf", outtype="f32", tokenizer=TOKENIZER)
    by_head = whole.reshape(n_k, 2, share, -1)
    with GGUFFile.open(result.output) as file:
        for i, part in enumerate(("beta", "alpha")):
            expected = by_head[:, i].reshape(n_k * share, -1)
            np.testing.assert_array_equal(file.f32(f"blk.0.ssm_{part}.weight"), expected)
