"""Each family on a tiny checkpoint: keys, names, shapes, types and values as documented for the format.

The files are read back with gguf-py, an independent reader.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from hybrid.convert import convert, plan, verify
from hybrid.quant.ggml.errors import CheckpointError, Remedy, TokenizerError, UnsupportedError


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    reader = gguf.GGUFReader(path)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def values(tensor: Any) -> np.ndarray:
    """f32 values in numpy order."""
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in tensor.shape][::-1])


def test_jamba_keys(jamba, tmp_path):
    out = convert(jamba().write(), tmp_path / "o.gguf", outtype="f16").output
    fields, _ = read(out)
    keys = [name for name in fields if name.startswith("jamba.") or name == "general.file_type"]
    assert keys == [
        "jamba.block_count",
        "jamba.context_length",
        "jamba.embedding_length",
        "jamba.feed_forward_length",
        "jamba.attention.head_count",
        "jamba.attention.head_count_kv",
        "jamba.ssm.conv_kernel",
        "jamba.ssm.inner_size",
        "jamba.ssm.state_size",
        "jamba.ssm.time_step_rank",
        "jamba.attention.layer_norm_rms_epsilon",
        "jamba.expert_count",
        "jamba.expert_used_count",
        "general.file_type",
    ]
    stated = {name: fields[name].contents() for name in keys}
    assert stated["jamba.attention.head_count_kv"] == [0, 2, 0, 0, 2]
    assert fields["jamba.attention.head_count_kv"].types == [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32]
    assert [stated[f"jamba.ssm.{k}"] for k in ("conv_kernel", "inner_size", "state_size", "time_step_rank")] == [
        3,
        128,
        5,
        7,
    ]
    assert (stated["jamba.expert_count"], stated["jamba.expert_used_count"], stated["general.file_type"]) == (
        3,
        2,
        1,
    )
    assert fields["jamba.block_count"].types == [gguf.GGUFValueType.UINT32]
    names = list(fields)
    assert names[:2] == ["general.architecture", "general.type"]
    assert names.index("general.quantization_version") == names.index("tokenizer.ggml.model") - 1


def test_jamba_tensors(jamba, tmp_path):
    tiny = jamba()
    _, tensors = read(convert(tiny.write(), tmp_path / "o.gguf", outtype="f16").output)
    source = tiny.tensors
    p = "model.layers.0.mamba."
    for name, expected, kind in (
        ("token_embd.weight", source["model.embed_tokens.weight"], "F16"),
        ("output_norm.weight", source["model.final_layernorm.weight"], "F32"),
        ("blk.0.attn_norm.weight", source["model.layers.0.input_layernorm.weight"], "F32"),
        ("blk.0.ffn_norm.weight", source["model.layers.0.pre_ff_layernorm.weight"], "F32"),
        ("blk.0.ssm_in.weight", source[p + "in_proj.weight"], "F16"),
        ("blk.0.ssm_conv1d.weight", source[p + "conv1d.weight"][:, 0, :], "F32"),
        ("blk.0.ssm_conv1d.bias", source[p + "conv1d.bias"], "F32"),
        ("blk.0.ssm_x.weight", source[p + "x_proj.weight"], "F16"),
        ("blk.0.ssm_dt.weight", source[p + "dt_proj.weight"], "F16"),
        ("blk.0.ssm_dt.bias", source[p + "dt_proj.bias"], "F32"),
        ("blk.0.ssm_dt_norm.weight", source[p + "dt_layernorm.weight"], "F32"),
        ("blk.0.ssm_b_norm.weight", source[p + "b_layernorm.weight"], "F32"),
        ("blk.0.ssm_c_norm.weight", source[p + "c_layernorm.weight"], "F32"),
        ("blk.0.ssm_d", source[p + "D"], "F32"),
        ("blk.0.ssm_out.weight", source[p + "out_proj.weight"], "F16"),
        ("blk.1.attn_q.weight", source["model.layers.1.self_attn.q_proj.weight"], "F16"),
        ("blk.1.attn_k.weight", source["model.layers.1.self_attn.k_proj.weight"], "F16"),
        ("blk.0.ffn_down.weight", source["model.layers.0.feed_forward.down_proj.weight"], "F16"),
        ("blk.3.ffn_gate_inp.weight", source["model.layers.3.feed_forward.router.weight"], "F32"),
        *(
            (
                f"blk.3.ffn_{k}_exps.weight",
                np.stack([source[f"model.layers.3.feed_forward.experts.{e}.{k}_proj.weight"] for e in range(3)]),
                "F16",
            )
            for k in ("down", "gate", "up")
        ),
    ):
        tensor = tensors.pop(name)
        assert tensor.tensor_type.name == kind, name
        np.testing.assert_array_equal(values(tensor), expected, err_msg=name)  # multiples of 1/64: exact in f16
    decay = values(tensors["blk.0.ssm_a"])
    np.testing.assert_allclose(decay, -np.exp(source[p + "A_log"].astype(np.float64)), rtol=6e-8)
    assert "output.weight" not in tensors


def test_order_is_that_of_reading(jamba):
    """Names sorted as strings; expert stacks are at their last expert."""
    names = [tensor.name for tensor in plan(jamba().write()).tensors]
    first = [name for name in names if name.startswith("blk.1.")]
    assert first[:4] == [
        "blk.1.ffn_down_exps.weight",
        "blk.1.ffn_gate_exps.weight",
        "blk.1.ffn_up_exps.weight",
        "blk.1.ffn_gate_inp.weight",
    ]
    assert names[:2] == ["token_embd.weight", "output_norm.weight"]


def test_parts_make_the_same_tensors(jamba, tmp_path):
    whole = convert(jamba().write(as_bf16=True), tmp_path / "a.gguf").output
    (tmp_path / "model" / "model.safetensors").unlink()
    parts = convert(jamba().write(as_bf16=True, parts=3), tmp_path / "b.gguf").output
    _, a = read(whole)
    _, b = read(parts)
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name].data, b[name].data) for name in a)
    assert a["blk.0.ssm_in.weight"].tensor_type.name == "BF16"  # auto


def test_mini_jamba_names(jamba, tmp_path):
    """Names of older code: `moe` with one expert on dense layers, and pre_moe_layernorm."""
    tiny = jamba()
    expected = [t.name for t in plan(tiny.write()).tensors]
    renamed = {}
    for name, array in tiny.tensors.items():
        old = name.replace("pre_ff_layernorm", "pre_moe_layernorm").replace(".feed_forward.", ".moe.")
        if ".moe." in old and "experts" not in old and "router" not in old:
            old = old.replace(".moe.", ".moe.experts.0.")
        renamed[old] = array
    assert renamed.keys() != tiny.tensors.keys()
    tiny.tensors = renamed
    planned = plan(tiny.write())
    assert sorted(t.name for t in planned.tensors) == sorted(expected)
    verify(tiny.folder, convert(tiny.folder, tmp_path / "o.gguf").output)


def test_automatic_rank(jamba):
    planned = plan(jamba(mamba_dt_rank="auto").write())
    assert planned.metadata["jamba.ssm.time_step_rank"] == 4


def test_one_expert_is_dense(jamba):
    planned = plan(jamba(num_experts=1, num_experts_per_tok=2).write())
    assert planned.metadata["jamba.expert_used_count"] == 1  # llama.cpp aborts on more experts used than there are
    assert not [t for t in planned.tensors if "exps" in t.name or "gate_inp" in t.name]


def test_untied_output(jamba, tmp_path):
    tiny = jamba(tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"lacks tensor lm_head\.weight"):
        plan(tiny.write())
    tiny.tensors["lm_head.weight"] = tiny.tensors["model.embed_tokens.weight"] + 1
    _, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output)
    np.testing.assert_array_equal(values(tensors["output.weight"]), tiny.tensors["lm_head.weight"])
    tiny.tensors["lm_head.weight"] = tiny.tensors["model.embed_tokens.weight"]
    assert "output.weight" not in [t.name for t in plan(tiny.write()).tensors]


def test_tied_output_that_differs_is_kept(jamba):
    """As in transformers 5, whatever the config says."""
    tiny = jamba()
    tiny.tensors["lm_head.weight"] = tiny.tensors["model.embed_tokens.weight"] + 1
    planned = plan(tiny.write())
    assert "output.weight" in [t.name for t in planned.tensors]
    assert any("tie_word_embeddings is ignored: lm_head.weight is not" in note for note in planned.notes)


def test_mamba_keys(mamba, tmp_path):
    fields, tensors = read(convert(mamba().write(), tmp_path / "o.gguf").output)
    keys = [name for name in fields if name.startswith("mamba.") or name == "general.file_type"]
    assert keys == [
        "mamba.context_length",
        "mamba.embedding_length",
        "mamba.feed_forward_length",
        "mamba.attention.head_count",
        "mamba.block_count",
        "mamba.ssm.conv_kernel",
        "mamba.ssm.inner_size",
        "mamba.ssm.state_size",
        "mamba.ssm.time_step_rank",
        "mamba.attention.layer_norm_rms_epsilon",
        "mamba.ssm.dt_b_c_rms",
        "general.file_type",
    ]
    assert [fields[k].contents() for k in keys[:9]] == [1 << 20, 48, 0, 0, 2, 3, 96, 5, 6]
    assert fields["mamba.ssm.dt_b_c_rms"].contents() is False
    assert len(tensors) == 2 + 2 * 10


def test_falcon_mamba_has_an_epsilon_of_its_own(mamba):
    planned = plan(
        mamba(architectures=["FalconMambaForCausalLM"], model_type="falcon_mamba", mixer_rms_eps=3e-6).write()
    )
    assert planned.metadata["mamba.ssm.dt_b_c_rms"] is True
    assert planned.metadata["mamba.ssm.dt_b_c_rms_epsilon"] == 3e-6
    assert planned.metadata["mamba.attention.layer_norm_rms_epsilon"] == 1e-5


def test_original_mamba(mamba, tmp_path):
    """state-spaces/mamba-*: no architecture name, sizes in ssm_cfg, padded embedding, `embedding`, no tokenizer."""
    tiny = mamba()
    tiny.config = {
        "d_model": 48,
        "n_layer": 2,
        "vocab_size": 27,
        "ssm_cfg": {"d_state": 5, "d_conv": 3, "dt_rank": 6},
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 8,
    }
    embedding = np.ones((32, 48), np.float32)
    del tiny.tensors["backbone.embeddings.weight"]
    tiny.tensors |= {"backbone.embedding.weight": embedding, "lm_head.weight": embedding}
    folder = tiny.write()
    donor = tmp_path / "donor"
    donor.mkdir()
    (folder / "tokenizer.model").rename(donor / "tokenizer.model")
    with pytest.raises(TokenizerError, match=r"has no tokenizer .*GPT-NeoX") as refused:
        plan(folder)
    assert refused.value.remedy is Remedy.TOKENIZER
    planned = plan(folder, tokenizer=donor)
    assert planned.metadata["mamba.ssm.state_size"] == 5
    assert len(planned.metadata["tokenizer.ggml.tokens"]) == 32
    assert planned.metadata["tokenizer.ggml.tokens"][29:] == ["[PAD29]", "[PAD30]", "[PAD31]"]
    assert planned.tensors[0].shape == (32, 48)
    # A GGUF file serves as well, and a folder without weights for --vocab-only.
    first = convert(folder, tmp_path / "first.gguf", tokenizer=donor).output
    again = plan(folder, tokenizer=first)
    of = lambda p: {k: v for k, v in p.metadata.items() if k.startswith("tokenizer.")}
    assert of(again) == of(planned)
    (folder / "model.safetensors").unlink()
    assert len(plan(folder, tokenizer=donor, vocab_only=True).metadata["tokenizer.ggml.tokens"]) == 32


def test_embedding_is_padded_only_where_the_weights_are(mamba):
    """29 tokens are not rounded up to 32: llama.cpp's converter does so, and its file does not load."""
    planned = plan(mamba().write())
    assert len(planned.metadata["tokenizer.ggml.tokens"]) == 29 == planned.tensors[0].shape[0]


def test_llama_rotates_rows(llama, tmp_path):
    tiny = llama()
    fields, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output)
    for part, heads in (("q", 4), ("k", 2)):
        source = tiny.tensors[f"model.layers.1.self_attn.{part}_proj.weight"]
        rotated = values(tensors[f"blk.1.attn_{part}.weight"])
        for head in range(heads):
            for j in range(8):  # head size 16: row j turns with row j + 8 there, row 2j with 2j + 1 here
                np.testing.assert_array_equal(rotated[16 * head + 2 * j], source[16 * head + j])
                np.testing.assert_array_equal(rotated[16 * head + 2 * j + 1], source[16 * head + j + 8])
    np.testing.assert_array_equal(
        values(tensors["blk.1.attn_v.weight"]), tiny.tensors["model.layers.1.self_attn.v_proj.weight"]
    )
    keys = [name.removeprefix("llama.") for name in fields if name.startswith("llama.")]
    assert keys == [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "rope.freq_base",
        "attention.layer_norm_rms_epsilon",
        "vocab_size",
        "rope.dimension_count",
    ]
    assert fields["llama.rope.freq_base"].contents() == 10000.0


def test_llama_head_size_and_biases(llama):
    tiny = llama(head_dim=10, attention_bias=True, num_attention_heads=6)
    for i in range(2):
        for part, size in (("q", 60), ("k", 20), ("v", 20), ("o", 64)):
            tiny.tensors[f"model.layers.{i}.self_attn.{part}_proj.bias"] = np.zeros(size, np.float32)
    planned = plan(tiny.write())
    assert planned.metadata["llama.attention.key_length"] == planned.metadata["llama.attention.value_length"] == 10
    assert planned.metadata["llama.rope.dimension_count"] == 10
    kinds = {t.name: (t.shape, t.type.name) for t in planned.tensors}
    assert kinds["blk.0.attn_q.weight"][0] == (60, 64) and kinds["blk.0.attn_output.weight"][0] == (64, 60)
    assert kinds["blk.1.attn_q.bias"] == ((60,), "F32")


def test_llama_3_frequencies(llama, tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    tiny = llama(rope_scaling=scaling, rope_theta=500.0)
    _, tensors = read(convert(tiny.write(), tmp_path / "o.gguf").output)
    factors = values(tensors["rope_freqs.weight"])
    wavelength = 2 * np.pi * 500.0 ** (np.arange(8) / 8)
    assert factors.shape == (8,)
    assert (factors[wavelength < 16] == 1).all() and (factors[wavelength > 64] == 8).all()
    between = (wavelength > 16) & (wavelength < 64)
    assert between.any() and (np.diff(factors[between]) > 0).all()
    assert ((factors[between] > 1) & (factors[between] < 8)).all()
    newer = llama(rope_parameters={**scaling, "rope_theta": 500.0})
    _, again = read(convert(newer.write(), tmp_path / "p.gguf").output)
    np.testing.assert_array_equal(values(again["rope_freqs.weight"]), factors)


def test_llama_linear_scaling(llama):
    planned = plan(llama(rope_scaling={"type": "linear", "factor": 2.5}).write())
    assert planned.metadata["llama.rope.scaling.type"] == "linear"
    assert planned.metadata["llama.rope.scaling.factor"] == 2.5


@pytest.mark.parametrize("kind", ["dynamic", "proportional"])
def test_llama_other_scalings_are_named(llama, kind):
    with pytest.raises(UnsupportedError, match=f"'{kind}' is not supported, only default, .* and longrope are"):
        plan(llama(rope_scaling={"type": kind, "factor": 2.5}).write())


def test_types(jamba):
    kinds = {t.name: t.type.name for t in plan(jamba(intermediate_size=80).write(), outtype="q8_0").tensors}
    assert kinds["blk.0.ssm_in.weight"] == "Q8_0"
    assert kinds["blk.0.ssm_dt.weight"] == "F16"  # rows of 7
    assert kinds["blk.0.ffn_down.weight"] == "F16"  # rows of 80
    assert {kinds[f"blk.0.{n}"] for n in ("ssm_a", "ssm_d", "ssm_conv1d.weight", "ssm_b_norm.weight")} == {"F32"}
    assert kinds["blk.1.ffn_gate_inp.weight"] == "F32"


def test_config_may_be_legacy(data_dir, tmp_path):
    """The keys of transformers 4 and 5 give the same file."""
    for name in ("jamba-dense", "mamba-bf16", "falcon-mamba", "llama-unigram-bin"):
        plans = []
        for config in ("config.json", "config.legacy.json"):
            folder = tmp_path / config / name
            folder.mkdir(parents=True)
            for file in (data_dir / "checkpoints" / name).iterdir():
                if file.is_file() and not file.name.startswith("config"):
                    (folder / file.name).symlink_to(file)
            (folder / "config.json").write_text((data_dir / "checkpoints" / name / config).read_text())
            plans.append(plan(folder))
        assert plans[0].metadata == plans[1].metadata, name
        assert plans[0].tensors == plans[1].tensors, name


def test_float_constants_of_transformers_5(mamba):
    """`{"__float__": "Infinity"}` is accepted where no finite number is needed; elsewhere the error is clear."""
    tiny = mamba(time_step_limit=[0.0, {"__float__": "Infinity"}], use_mambapy=False)
    plan(tiny.write())
    with pytest.raises(CheckpointError, match=r"config\.json: layer_norm_epsilon = .*finite"):
        plan(mamba(layer_norm_epsilon={"__float__": "Infinity"}).write())


def test_an_unknown_architecture_says_what_is_near_it(jamba):
    tiny = jamba(architectures=["Jamba2ForCausalLM"])
    with pytest.raises(UnsupportedError, match=r"Jamba2.*near it are JambaForCausalLM") as refused:
        plan(tiny.write())
    assert refused.value.remedy is Remedy.LIST_ARCHITECTURES


def test_quantized_checkpoints_are_refused(llama):
    with pytest.raises(UnsupportedError, match="quantized already"):
        plan(llama(quantization_config={"quant_method": "quanto"}).write())


def test_source_may_be_a_file(jamba):
    tiny = jamba()
    folder = tiny.write()
    whole = plan(folder)
    for name in ("config.json", "model.safetensors"):
        assert plan(folder / name).tensors == whole.tensors
    assert json.loads((folder / "config.json").read_text()) == tiny.config
