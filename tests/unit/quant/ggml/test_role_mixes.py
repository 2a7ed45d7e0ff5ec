"""Mixes by role: the type of every kind of matrix, with and without routed experts."""

import pytest

from hybrid.quant.ggml.mixes import ModelTraits
from hybrid.quant.ggml.role_mixes import ROLE_MIXES, role_types
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS, GGMLType

Q2, Q3, Q5, Q6, Q8 = (GGMLType[name] for name in ("Q2_K", "Q3_K", "Q5_K", "Q6_K", "Q8_0"))
IQ4 = GGMLType.IQ4_XS
LOW = ("attn_q", "attn_output", "attn_gate", "ssm_in", "ffn_up", "ffn_gate", "ffn_gate_shexp", "shortconv.in_proj",
       "time_mix_key", "channel_mix_key", "attn_q_a")  # fmt: skip
HIGH = ("attn_k", "attn_v", "attn_qkv", "attn_kv_a_mqa", "attn_kv_b", "attn_v_b", "ssm_out", "ssm_alpha", "ffn_down",
        "ffn_down_shexp", "shortconv.out_proj", "time_mix_value", "channel_mix_value", "nextn.eh_proj")  # fmt: skip
EXPERTS = ("ffn_up_exps", "ffn_gate_exps", "ffn_gate_up_exps", "ffn_down_exps")


def types(name: str, *kinds: str, arch: str = "") -> dict[tuple[int, str], GGMLType]:
    """The type of these matrices in each of 9 layers."""
    shapes = {f"blk.{i}.{kind}.weight": (4, 256) for i in range(9) for kind in kinds}
    found = role_types(ROLE_MIXES[name], shapes, ModelTraits(9, arch=arch))
    return {(int(full.split(".")[1]), full.split(".", 2)[2].removesuffix(".weight")): t for full, t in found.items()}


@pytest.mark.parametrize(
    ("name", "early", "low", "high"), [("Q2_K_XL", Q3, Q2, Q3), ("Q3_K_XL", IQ4, Q3, IQ4), ("Q4_K_XL", Q5, IQ4, Q5)]
)
def test_without_experts(name: str, early: GGMLType, low: GGMLType, high: GGMLType) -> None:
    for (i, kind), found in types(name, *LOW, *HIGH).items():
        assert found is (high if kind in HIGH else early if i < 2 else low), (i, kind)


@pytest.mark.parametrize(
    ("name", "kinds", "experts", "down"),
    [
        ("Q2_K_XL", (Q5, IQ4, Q5), Q2, Q3),
        ("Q3_K_XL", (Q5, IQ4, Q5), Q3, IQ4),
        ("Q4_K_XL", (Q6, Q5, Q6), IQ4, Q5),
    ],
)
def test_beside_experts(
    name: str, kinds: tuple[GGMLType, GGMLType, GGMLType], experts: GGMLType, down: GGMLType
) -> None:
    early, low, high = kinds
    for (i, kind), found in types(name, *LOW, *HIGH, *EXPERTS).items():
        if kind in EXPERTS:
            assert found is (down if "down" in kind else experts), (i, kind)
        else:
            assert found is (high if kind in HIGH else early if i < 2 else low), (i, kind)


def test_output_and_embedding() -> None:
    for name, kind in {"Q2_K_XL": Q5, "Q3_K_XL": Q5, "Q4_K_XL": Q6}.items():
        shapes = {"token_embd.weight": (9, 256), "output.weight": (9, 256), "per_layer_token_embd.weight": (9, 256)}
        found = role_types(ROLE_MIXES[name], shapes, ModelTraits(9))
        assert found["token_embd.weight"] is found["output.weight"] is kind
        assert found["per_layer_token_embd.weight"] is ROLE_MIXES[name].alone.low


def test_matrices_that_are_always_exact() -> None:
    found = types("Q2_K_XL", "attn_q_a", "attn_k", arch="glm5-next")
    assert found[5, "attn_q_a"] is Q8 and found[5, "attn_k"] is Q3


def test_bits_go_down_with_the_name() -> None:
    size = lambda kind: TRAITS[kind].nbytes / TRAITS[kind].block
    for mix in ROLE_MIXES.values():
        most = FILE_TYPE_WEIGHT[mix.file_type]
        for beside in (mix.alone, mix.beside):
            assert size(beside.low) < size(beside.early) <= size(beside.high) <= size(beside.output)
        assert size(mix.experts) <= size(most) and size(mix.experts) < size(mix.experts_down)
