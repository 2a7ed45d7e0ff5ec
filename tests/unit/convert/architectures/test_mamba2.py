"""Mamba-2 and hybrids with its layers on tiny checkpoints: keys, names, shapes, values. Read back with gguf-py."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from hybrid.convert import convert, plan, verify
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError


def read(path: Path, arch: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The architecture's keys, and all tensors as f32 in numpy order."""
    reader = gguf.GGUFReader(path)
    keys = {k.removeprefix(arch + "."): f.contents() for k, f in reader.fields.items() if k.startswith(arch + ".")}
    tensors = {
        t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in t.shape][::-1])
        for t in reader.tensors
    }
    return keys, tensors


def check_mixer(tensors: dict[str, np.ndarray], source: dict[str, np.ndarray], blk: str, hf: str, groups: int) -> None:
    np.testing.assert_array_equal(tensors[blk + "ssm_in.weight"], source[hf + "in_proj.weight"])
    np.testing.assert_array_equal(tensors[blk + "ssm_conv1d.weight"], source[hf + "conv1d.weight"][:, 0])
    np.testing.assert_array_equal(tensors[blk + "ssm_conv1d.bias"], source[hf + "conv1d.bias"])
    np.testing.assert_array_equal(tensors[blk + "ssm_dt.bias"], source[hf + "dt_bias"])
    np.testing.assert_array_equal(tensors[blk + "ssm_d"], source[hf + "D"][:, None])
    np.testing.assert_array_equal(tensors[blk + "ssm_norm.weight"], source[hf + "norm.weight"].reshape(groups, -1))
    np.testing.assert_array_equal(tensors[blk + "ssm_out.weight"], source[hf + "out_proj.weight"])
    decay = -np.exp(source[hf + "A_log"].astype(np.float64))[:, None]
    np.testing.assert_allclose(tensors[blk + "ssm_a"], decay, rtol=6e-8)


def test_mamba2(mamba2, tmp_path):
    tiny = mamba2()
    keys, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output, "mamba2")
    assert keys == {
        "context_length": 1 << 20,
        "embedding_length": 48,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "block_count": 2,
        "ssm.conv_kernel": 3,
        "ssm.inner_size": 96,
        "ssm.state_size": 5,
        "ssm.time_step_rank": 6,
        "ssm.group_count": 2,
        "attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
    }
    assert len(tensors) == 3 + 2 * 9
    check_mixer(tensors, tiny.tensors, "blk.1.", "backbone.layers.1.mixer.", 2)
    verify(tiny.folder, tmp_path / "o.gguf")


def test_original_mamba2(mamba2):
    """state-spaces/mamba2-*: no architecture name, sizes in ssm_cfg, heads given by their width."""
    tiny = mamba2()
    tiny.config = {
        "d_model": 48,
        "n_layer": 2,
        "vocab_size": 29,
        "d_intermediate": 0,
        "attn_layer_idx": [],
        "ssm_cfg": {"layer": "Mamba2", "d_state": 5, "d_conv": 3, "headdim": 16, "ngroups": 2},
    }
    planned = plan(tiny.write())
    assert planned.architecture == "Mamba2ForCausalLM"
    assert planned.metadata["mamba2.ssm.time_step_rank"] == 6


def test_codestral_mamba_says_norm_before_gate(mamba2):
    """The first transformers with this family have the key; no model code ever read it."""
    plain, said = mamba2(), mamba2(norm_before_gate=True)
    assert plan(plain.write()).metadata == plan(said.write()).metadata


def test_layers_of_another_width_load_in_llama_cpp_as_mamba2_alone(mamba2, granite):
    narrow = mamba2(expand=1, num_heads=3, n_groups=1)
    assert not plan(narrow.write()).notes
    wide = granite(mamba_expand=3, mamba_n_heads=6)
    assert "llama.cpp cannot load this file" in " ".join(plan(wide.write()).notes)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_heads": 5}, CheckpointError, "num_heads = 5"),
        ({"head_dim": 7}, CheckpointError, "num_heads = 6"),
        ({"n_groups": 4}, CheckpointError, "n_groups = 4.*divisor of the 6 heads"),
        ({"time_step_limit": [0.1, 0.001]}, CheckpointError, "time_step_limit = .0.1, 0.001.*a least step size and"),
        ({"time_step_limit": [0.1]}, CheckpointError, "time_step_limit = .0.1.*two numbers"),
        ({"time_step_limit": ["0", 1]}, CheckpointError, 'time_step_limit = "0".*a finite number'),
        ({"time_step_limit": 3}, CheckpointError, "time_step_limit = 3"),
        ({"norm_before_gate": True, "model_type": None}, UnsupportedError, "norm_before_gate"),
        ({"ssm_cfg": {"norm_before_gate": True}}, UnsupportedError, "norm_before_gate"),
    ],
)
def test_mamba2_errors(mamba2, change, kind, message):
    tiny = mamba2()
    tiny.config |= change
    with pytest.raises(kind, match=message):
        plan(tiny.write())


def test_granite(granite, tmp_path):
    tiny = granite()
    keys, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output, "granitehybrid")
    assert keys == {
        "block_count": 3,
        "context_length": 1 << 20,
        "embedding_length": 64,
        "feed_forward_length": 24,
        "attention.head_count": 4,
        "attention.head_count_kv": [0, 2, 0],
        "rope.freq_base": 10000.0,
        "attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "expert_count": 3,
        "expert_used_count": 2,
        "vocab_size": 31,
        "rope.dimension_count": 16,
        "attention.scale": 0.5,
        "embedding_scale": 12.0,
        "residual_scale": 0.25,
        "logit_scale": 6.0,
        "expert_shared_feed_forward_length": 40,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 128,
        "ssm.state_size": 7,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 1,
        "rope.scaling.finetuned": False,
    }
    source = tiny.tensors
    check_mixer(tensors, source, "blk.2.", "model.layers.2.mamba.", 1)
    both = source["model.layers.1.block_sparse_moe.input_linear.weight"]
    np.testing.assert_array_equal(tensors["blk.1.ffn_gate_exps.weight"], both[:, :24])
    np.testing.assert_array_equal(tensors["blk.1.ffn_up_exps.weight"], both[:, 24:])
    down = source["model.layers.1.block_sparse_moe.output_linear.weight"]
    np.testing.assert_array_equal(tensors["blk.1.ffn_down_exps.weight"], down)
    shared = source["model.layers.0.shared_mlp.input_linear.weight"]
    np.testing.assert_array_equal(tensors["blk.0.ffn_gate_shexp.weight"], shared[:40])
    np.testing.assert_array_equal(tensors["blk.0.ffn_up_shexp.weight"], shared[40:])
    q = source["model.layers.1.self_attn.q_proj.weight"].reshape(4, 2, 8, 64)
    np.testing.assert_array_equal(tensors["blk.1.attn_q.weight"].reshape(4, 8, 2, 64), q.swapaxes(1, 2))
    assert len(tensors) == 2 + 3 * 9 + 2 * 8 + 4
    verify(tiny.folder, tmp_path / "o.gguf")


def test_dense_granite(granite, tmp_path):
    tiny = granite(num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope")
    keys, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output, "granitehybrid")
    assert (keys["feed_forward_length"], keys["expert_count"], keys["context_length"]) == (40, 0, 77)
    assert keys["rope.scaling.finetuned"] is True
    assert "expert_shared_feed_forward_length" not in keys
    both = tiny.tensors["model.layers.0.shared_mlp.input_linear.weight"]
    np.testing.assert_array_equal(tensors["blk.0.ffn_gate.weight"], both[:40])
    np.testing.assert_array_equal(tensors["blk.0.ffn_up.weight"], both[40:])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"layer_types": ["mamba", "sliding", "mamba"]}, CheckpointError, "layer_types = .*3 times attention or mamba"),
        ({"layer_types": None}, CheckpointError, "layer_types"),
        ({"num_experts_per_tok": 4}, CheckpointError, "num_experts_per_tok = 4"),
        ({"shared_intermediate_size": 41}, CheckpointError, "output_linear.weight has shape .*expected .64, 41"),
        ({"position_embedding_type": "alibi"}, UnsupportedError, "position_embedding_type"),
    ],
)
def test_granite_errors(granite, change, kind, message):
    tiny = granite()
    tiny.config |= change
    with pytest.raises(kind, match=message):
        plan(tiny.write())


def test_bamba(bamba, tmp_path):
    """RoPE rotates the first 8 rows of heads of 16: row j with j + 4 in transformers, row 2j with 2j + 1 here."""
    tiny = bamba()
    keys, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output, "granitehybrid")
    assert (keys["rope.dimension_count"], keys["rope.scaling.finetuned"], keys["context_length"]) == (8, True, 77)
    assert keys["attention.head_count_kv"] == [0, 2, 0]
    check_mixer(tensors, tiny.tensors, "blk.0.", "model.layers.0.mamba.", 1)
    source = tiny.tensors["model.layers.1.self_attn.k_proj.weight"]
    for head in (0, 16):
        order = [head + j for j in (0, 4, 1, 5, 2, 6, 3, 7, *range(8, 16))]
        np.testing.assert_array_equal(tensors["blk.1.attn_k.weight"][head : head + 16], source[order])
    up = tiny.tensors["model.layers.2.feed_forward.up_proj.weight"]
    np.testing.assert_array_equal(tensors["blk.2.ffn_up.weight"], up)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_rotary_emb": 7}, "attn_rotary_emb = 7.*a positive even number"),
        ({"attn_rotary_emb": 18}, "attn_rotary_emb = 18.*from 2 to 16"),
        ({"attn_layer_indices": [3]}, "attn_layer_indices = .3.*numbers of the 3 layers"),
    ],
)
def test_bamba_errors(bamba, change, message):
    tiny = bamba()
    tiny.config |= change
    with pytest.raises(CheckpointError, match=message):
        plan(tiny.write())


def test_parts_of_a_transposed_tensor(tmp_path):
    """A block of a tensor that torch stored transposed is gathered."""
    from hybrid.convert.checkpoint.tensor import DataFile, Dtype, StoredTensor

    values = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    path = tmp_path / "data"
    path.write_bytes(values.tobytes())
    whole = StoredTensor("t", Dtype.F32, (3, 4, 5), DataFile(path), 0)
    half = whole.part((1, 2, 0), (2, 5))
    assert half.strides is None
    np.testing.assert_array_equal(half.read(0, 10).reshape(2, 5), values[1, 2:])
    turned = StoredTensor("t", Dtype.F32, (5, 4, 3), DataFile(path), 0, strides=(1, 5, 20))
    block = turned.part((1, 2, 0), (2, 3))
    np.testing.assert_array_equal(block.read(0, 6).reshape(2, 3), values.transpose(2, 1, 0)[1, 2:])
