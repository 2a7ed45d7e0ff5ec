"""MiniMax-01: two spellings of a config, which values of a head are rotated, and how llama.cpp runs the file."""

from typing import Any

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert.architectures import Family
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.types import FileType

PUBLISHED, OURS = "minimax-text-01", "minimax-scaled"
C, U = CheckpointError, UnsupportedError


def family(name: str, **change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(name: str, **change: Any) -> dict[str, Any]:
    return dict(family(name, **change).keys(FileType.F32))


def test_both_spellings_are_one_model() -> None:
    ours = {
        "architectures": ["MiniMaxForCausalLM"],
        "head_dim": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "linear_attention"],
        **{f"{part}_{name}_factor": 2.5 for part in ("full_attn", "linear_attn", "mlp") for name in ("alpha", "beta")},
    }
    parts = ("full_attention", "linear_attention", "mlp")
    theirs = {
        "num_hidden_layers": 2,
        "attn_type_list": [1, 0],
        "rotary_dim": 24,
        **{f"layernorm_{part}_{name}": 2.5 for part in parts for name in ("alpha", "beta")},
    }
    same = {name: CONFIGS[PUBLISHED][name] for name in ("intermediate_size", "rms_norm_eps", "rope_theta")}
    assert keys(OURS, **ours, **same, num_local_experts=3) == keys(PUBLISHED, **theirs)


@pytest.mark.parametrize(
    ("name", "change", "n_rot", "noted"),
    [
        (PUBLISHED, {}, 12, False),
        (PUBLISHED, {"rotary_dim": ...}, 24, False),
        (PUBLISHED, {"architectures": ["MiniMaxM1ForCausalLM"]}, 12, False),
        (OURS, {}, 40, False),
        (OURS, {"rotary_dim": 20}, 40, True),  # like transformers' class, which has no such setting
        (OURS, {"rotary_dim": 40}, 40, False),
    ],
)
def test_how_much_of_a_head_turns(name: str, change: dict[str, Any], n_rot: int, noted: bool) -> None:
    assert keys(name, **change)["rope.dimension_count"] == n_rot
    assert any("rotary_dim = 20 is ignored" in note for note in family(name, **change).notes()) == noted


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([0] * 7 + [1, 0], None),  # llama.cpp's default
        ([0, 1, 0, 1], [True, False, True, False]),
        ([0] * 8, [True] * 8),
    ],
)
def test_which_layers_are_recurrent(layers: list[int], expected: list[bool] | None) -> None:
    got = keys(PUBLISHED, attn_type_list=layers, num_hidden_layers=len(layers))
    assert got.get("attention.recurrent_layers") == expected


def test_factors_that_differ_have_keys_of_their_own() -> None:
    got = keys(OURS)
    assert got["residual_scale"] == 1.7
    assert {key: value for key, value in got.items() if key.startswith("hybrid.") and "scale" in key} == {
        "hybrid.attention.output_scale": 0.8,
        "hybrid.lightning.residual_scale": 1.3,
        "hybrid.lightning.output_scale": 1.2,
        "hybrid.feed_forward.residual_scale": 0.9,
        "hybrid.feed_forward.output_scale": 1.4,
    }
    assert any("one factor for all residuals" in note for note in family(OURS).notes())
    assert not any("factor" in note for note in family(PUBLISHED).notes())


def test_the_norm_inside_has_its_own_epsilon() -> None:
    key, words = "hybrid.lightning.norm_rms_epsilon", "an epsilon of 1e-05"
    assert keys(PUBLISHED)[key] == 1e-6
    assert any(words in note for note in family(PUBLISHED).notes())
    assert key not in keys(PUBLISHED, rms_norm_eps=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "kind", "message"),
    [
        (PUBLISHED, {"postnorm": False}, C, "postnorm = false.*residuals are norms"),
        (PUBLISHED, {"postnorm": ...}, C, "has no postnorm"),
        (PUBLISHED, {"rotary_dim": 13}, C, "rotary_dim = 13.*positive even number of the 24 values"),
        (PUBLISHED, {"rotary_dim": 26}, C, "rotary_dim = 26"),
        (PUBLISHED, {"num_attention_heads": 6}, C, "num_attention_heads = 6.*a power of two"),
        (PUBLISHED, {"shared_intermediate_size": 8}, U, "shared_intermediate_size = 8 is not supported, only 0 is"),
        (PUBLISHED, {"attn_type_list": [0, 1]}, C, "attn_type_list = .*9 times 1 for softmax"),
        (PUBLISHED, {"attn_type_list": [2] * 9}, C, "attn_type_list"),
        (OURS, {"layer_types": ["mamba"] * 4}, C, "layer_types = .*4 times linear_attention or full_attention"),
        (OURS, {"num_experts_per_tok": 6}, C, "num_experts_per_tok = 6.*from 1 to 5"),
        (OURS, {"mlp_beta_factor": 0}, C, "mlp_beta_factor = 0.*a positive number"),
        (OURS, {"hidden_act": "gelu"}, U, "hidden_act"),
    ],
)
def test_errors(name: str, change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        family(name, **change)
