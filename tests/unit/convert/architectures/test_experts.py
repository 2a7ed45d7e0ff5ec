"""Families with experts: their configs in the spellings of transformers 4 and 5, and the resulting GGUF keys."""

from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert.checkpoint import Config
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError


def family(name: str, change: dict[str, Any]) -> Any:
    """The family of a config with these changes; None leaves a key out."""
    config = {"vocab_size": 8, "max_position_embeddings": 9, **CONFIGS[name], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not None})


def keys(name: str, change: dict[str, Any]) -> dict[str, Any]:
    return dict(family(name, change).keys(0))


def targets(name: str, change: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {row.target: row.shape for row in family(name, change).rows()}


def notes(name: str, change: dict[str, Any]) -> str:
    return " ".join(family(name, change).notes())


V5 = ["linear_attention", "moe", "linear_attention", "full_attention", "moe"]


def test_nemotron_h_spelled_as_in_transformers_5() -> None:
    old = family("nemotron-h-moe", {})
    assert family("nemotron-h-moe", {"hybrid_override_pattern": None, "layers_block_type": V5}) == old
    assert family("nemotron-h-moe", {"hybrid_override_pattern": None, "layer_types": V5}) == old
    assert family("nemotron-h-moe", {"hybrid_override_pattern": "M", "layers_block_type": V5}) == old  # the list counts
    assert family("nemotron-h-moe", {"n_routed_experts": None, "num_local_experts": 5}) == old
    assert old.canonical("model.layers.1.mixer.gate.weight") == "backbone.layers.1.mixer.gate.weight"


def test_nemotron_h_groups() -> None:
    groups = {"n_routed_experts": 12, "n_group": 4}
    written = keys("nemotron-h-moe", {**groups, "topk_group": 2})
    assert (written["expert_group_count"], written["expert_group_used_count"]) == (4, 2)
    # llama.cpp refuses groups of which all are used, and they change nothing
    written = keys("nemotron-h-moe", {**groups, "topk_group": 4})
    assert (written["expert_group_count"], written["expert_group_used_count"]) == (1, 1)


def test_nemotron_h_with_dense_parts_beside_experts() -> None:
    mixed = {"hybrid_override_pattern": "ME-*"}
    assert keys("nemotron-h-moe", mixed)["feed_forward_length"] == [0, 64, 224, 0]
    assert targets("nemotron-h-moe", mixed)["blk.2.ffn_up.weight"] == (224, 96)
    assert "there all feed-forward parts have experts" in notes("nemotron-h-moe", mixed)
    assert not notes("nemotron-h-moe", {})


def test_nemotron_h_biases_and_latent_size() -> None:
    dense = targets("nemotron-h", {"mlp_bias": True})
    assert (dense["blk.1.ffn_up.bias"], dense["blk.1.ffn_down.bias"]) == ((224,), (96,))
    assert not notes("nemotron-h", {"mlp_bias": True})  # llama.cpp has these
    assert "shared experts have no biases" in notes("nemotron-h-moe", {"mlp_bias": True})
    latent = targets("nemotron-h-moe", {"mlp_bias": True, "moe_latent_size": 40})
    assert (latent["blk.1.ffn_latent_down.weight"], latent["blk.1.ffn_latent_up.weight"]) == ((40, 96), (96, 40))
    assert latent["blk.1.ffn_up_exps.weight"] == (5, 64, 40)
    assert (latent["blk.1.ffn_latent_down.bias"], latent["blk.1.ffn_up_shexp.bias"]) == ((40,), (160,))
    assert keys("nemotron-h-moe", {"moe_latent_size": 40})["moe_latent_size"] == 40
    assert not notes("nemotron-h-moe", {"moe_latent_size": 40})


def test_nemotron_h_biases_of_mamba() -> None:
    """use_bias says whether the projections have biases; transformers never reads mamba_proj_bias."""
    assert "blk.0.ssm_in.bias" not in targets("nemotron-h", {"mamba_proj_bias": True})
    shapes = targets("nemotron-h", {"mamba_proj_bias": False, "use_bias": True})
    assert (shapes["blk.0.ssm_in.bias"], shapes["blk.0.ssm_out.bias"]) == ((255,), (96,))
    assert "projections of its Mamba layers have no biases" in notes("nemotron-h", {"use_bias": True})


def test_number_of_shared_experts_is_noted_only() -> None:
    """transformers gives any number of shared experts the width moe_shared_expert_intermediate_size."""
    change = {"n_shared_experts": 3}
    assert keys("nemotron-h-moe", change)["expert_shared_count"] == 3
    assert targets("nemotron-h-moe", change) == targets("nemotron-h-moe", {})


@pytest.mark.parametrize("name", ["qwen3moe", "olmoe"])
def test_experts_are_counted_under_two_names(name: str) -> None:
    n = CONFIGS[name]["num_experts"]
    assert family(name, {"num_experts": None, "num_local_experts": n}) == family(name, {})


@pytest.mark.parametrize(
    ("name", "usual", "unless_stated"),
    [("qwen3moe", True, False), ("olmoe", False, False), ("qwen3next", True, True), ("lfm2moe", True, True)],
)
def test_norm_topk_prob(name: str, usual: bool, unless_stated: bool) -> None:
    """usual: llama.cpp's behaviour for this family, whatever the file says; unless_stated: transformers' default."""
    same, other, default = ({"norm_topk_prob": value} for value in (usual, not usual, None))
    assert "expert_weights_norm" not in keys(name, same)
    assert not notes(name, same)
    assert keys(name, other)["expert_weights_norm"] is not usual
    assert f"llama.cpp takes norm_topk_prob = {str(usual).lower()}" in notes(name, other)
    assert keys(name, default) == keys(name, {"norm_topk_prob": unless_stated})


def test_layers_without_experts() -> None:
    change = {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    shapes = targets("qwen3moe", change)
    assert [f"blk.{i}.ffn_gate_inp.weight" in shapes for i in range(4)] == [False, True, False, False]
    assert shapes["blk.0.ffn_up.weight"] == (160, 96)
    assert "there all layers have experts" in notes("qwen3moe", change)
    with pytest.raises(CheckpointError, match=r"mlp_only_layers = .*a layer with experts left"):
        family("qwen3moe", {"mlp_only_layers": [0, 1]})
    with pytest.raises(CheckpointError, match=r"mlp_only_layers = .*numbers of layers"):
        family("qwen3moe", {"mlp_only_layers": ["0"]})


def test_qwen3_next_biases() -> None:
    """The bias of queries is twice as long: half of it is the gate's."""
    shapes = targets("qwen3next", {"attention_bias": True})
    assert [shapes[f"blk.3.attn_{part}.bias"] for part in ("q", "k", "v", "output")] == [(240,), (40,), (40,), (96,)]


@pytest.mark.parametrize("name", ["qwen3", "qwen3moe", "qwen3next", "olmo2", "olmoe"])
def test_what_attention_returns_has_a_bias_that_llama_cpp_has_not(name: str) -> None:
    assert "what attention returns has no bias" in notes(name, {"attention_bias": True})
    assert not notes(name, {"attention_bias": False})


def test_olmoe_clips() -> None:
    assert keys("olmoe", {"clip_qkv": 8.0})["attention.clamp_kqv"] == 8.0
    assert "passes over clip_qkv" in notes("olmoe", {"clip_qkv": 8.0})
    assert "attention.clamp_kqv" not in keys("olmoe", {"clip_qkv": None})


def test_lfm2_moe() -> None:
    written = keys("lfm2moe", {"routed_scaling_factor": 1.5})
    assert written["expert_weights_scale"] == 1.5
    assert "expert_weights_scale" not in keys("lfm2moe", {"routed_scaling_factor": 1.0})
    assert "ignores routed_scaling_factor" in notes("lfm2moe", {"routed_scaling_factor": 1.5})
    # no bias becomes one of zeros, which readers require
    (bias,) = (r for r in family("lfm2moe", {"use_expert_bias": False}).rows() if r.target == "blk.1.exp_probs_b.bias")
    np.testing.assert_array_equal(bias.constant, np.zeros(5, np.float32))


def test_lfm2_convolutions_with_biases() -> None:
    shapes = targets("lfm2", {"conv_bias": True})
    assert [shapes[f"blk.0.shortconv.{part}.bias"] for part in ("in_proj", "conv", "out_proj")] == [
        (288,),
        (96,),
        (96,),
    ]
    assert "short convolutions have no biases" in notes("lfm2", {"conv_bias": True})
    assert not notes("lfm2", {})


def test_olmo_has_another_epsilon_where_its_config_has_none() -> None:
    assert keys("olmoe", {"rms_norm_eps": None})["attention.layer_norm_rms_epsilon"] == 1e-5
    assert keys("olmo2", {"rms_norm_eps": None})["attention.layer_norm_rms_epsilon"] == 1e-5
    assert keys("qwen3moe", {"rms_norm_eps": None})["attention.layer_norm_rms_epsilon"] == 1e-6


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        # for an absent key whose default contradicts the others
        ("granitemoe", {"num_experts_per_tok": None}, "config.json has no num_experts_per_tok, expected 1 to 5"),
        ("olmo-hybrid", {"linear_num_value_heads": None, "linear_num_key_heads": 4}, "has no linear_num_value_heads"),
        ("rwkv6", {"hidden_size": 100, "head_size": None}, "has no head_size, expected a divisor"),
        ("recurrentgemma", {"lru_width": None, "hidden_size": 97}, "has no lru_width, expected a multiple"),
        # for another spelling
        ("qwen3next", {"head_dim": None, "attention_head_dim": 8}, "attention_head_dim = 8"),
        ("qwen3", {"head_dim": None, "attention_head_dim": 25}, "attention_head_dim = 25.*heads of even size"),
        ("recurrentgemma", {"block_types": None, "_block_types": ["mamba"]}, "_block_types = "),
        ("nemotron-h", {"time_step_limit": [0.0, 0.1]}, "time_step_limit = .*0 and Infinity: transformers passes over"),
    ],
)
def test_errors_about_keys_that_the_config_has_not(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        family(name, change)


def test_errors_in_jamba_name_the_spelling_at_hand(jamba: Any) -> None:
    config = {**jamba().config, "num_experts_per_tok": None, "num_experts_per_token": 9}
    with pytest.raises(CheckpointError, match=r"num_experts_per_token = 9 .*at most the 3 experts"):
        random_checkpoints.family_for(config)


def test_wrong_says_what_is_there() -> None:
    config = Config({"a": 1}, "config.json")
    assert str(config.wrong("a", "two")) == "config.json: a = 1 (an integer), expected two."
    assert str(config.wrong("b", "two")) == "config.json has no b, expected two."
    assert str(Config({"b": None}, "config.json").wrong("b", "two")) == "config.json: b = null (null), expected two."
    assert (config.named("b", "a"), config.named("b", "c")) == ("a", "b")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen35moe", {"norm_topk_prob": False}, "norm_topk_prob = false is not supported, only true is"),
        ("nemotron-h-moe", {"attention_bias": True}, "attention_bias = true"),
    ],
)
def test_what_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        family(name, change)
