"""Kimi Linear."""

from typing import Any

from family_rows import Config, FamilyRows
from reference.kimi import kimi_linear

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "KimiLinearForCausalLM"


def _attention(layers: list[int], **more: Any) -> Config:
    """Layers with attention, as published."""
    return {"layer_types": None, "linear_attn_config": {"full_attn_layers": layers, **more}}


ROWS = FamilyRows(
    configs={
        "kimi-linear": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "num_attention_heads": 3,
            "num_key_value_heads": 3, "kv_lora_rank": 40, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12,
            "v_head_dim": 24, "linear_num_heads": 3, "linear_head_dim": 24, "linear_conv_kernel_dim": 3,
            "num_experts": 8, "num_experts_per_token": 3, "moe_intermediate_size": 64, "num_shared_experts": 2,
            "num_expert_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        "kimi-linear-normed": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "full_attention"], "first_k_dense_replace": 3,
            "num_attention_heads": 5, "num_key_value_heads": 5, "q_lora_rank": 36, "kv_lora_rank": 33,
            "qk_nope_head_dim": 17, "qk_rope_head_dim": 0, "v_head_dim": 9, "linear_num_heads": 2, "linear_head_dim": 7,
            "linear_conv_kernel_dim": 4, "num_experts": 2, "num_experts_per_token": 1, "moe_intermediate_size": 32,
            "rms_norm_eps": 1e-6,
        },
    },
    twins={NAME: kimi_linear},
    noise={"kimi-linear": 2.4e-5},
    model_types={NAME: "kimi_linear"},
    errors=(
        (
            "kimi-linear", {"num_key_value_heads": 1}, CheckpointError,
            "num_key_value_heads = 1.*expected 3, as many as heads of quer",
        ),
        (
            "kimi-linear", {"layer_types": ["mamba"] * 4}, CheckpointError,
            "layer_types = .*4 times linear_attention or full_a",
        ),
        (
            "kimi-linear", {"layer_types": None}, CheckpointError,
            "has no full_attn_layers, expected numbers of layers from 1 to 4",
        ),
        ("kimi-linear", _attention([0, 2]), CheckpointError, "full_attn_layers = .0, 2.*numbers of layers from 1 to 4"),
        (
            "kimi-linear", _attention([2], short_conv_kernel_size=1), CheckpointError,
            "short_conv_kernel_size = 1.*from 2 to",
        ),
        (
            "kimi-linear", {"mlp_layer_types": [*["sparse"] * 3, "dense"]}, CheckpointError,
            "mlp_layer_types = .*without experts",
        ),
        (
            "kimi-linear", {"num_expert_group": 3}, CheckpointError,
            "num_expert_group = 3.*groups of two or more of the 8 experts",
        ),
        (
            "kimi-linear", {"num_expert_group": None, "n_group": 3}, CheckpointError,
            " n_group = 3.*groups of two or more",
        ),
        (
            "kimi-linear", {"num_experts_per_token": 5}, CheckpointError,
            "topk_group = 2.*groups that have the 5 experts",
        ),
        ("kimi-linear", {"moe_layer_freq": 2}, UnsupportedError, "moe_layer_freq = 2"),
        (
            "kimi-linear", {"moe_router_activation_func": "softmax"}, UnsupportedError,
            "moe_router_activation_func = .softmax.",
        ),
        ("kimi-linear", {"attention_bias": True}, UnsupportedError, "attention_bias = true"),
    ),
    notes=(
        ("kimi-linear", {"linear_num_heads": 5}, "as many heads as attention"),
        ("kimi-linear", {}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("kimi-linear", {"q_lora_rank": 20}, "queries come straight from a layer's input"),
        ("kimi-linear", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
        ("kimi-linear", {"moe_renormalize": False}, "norm_topk_prob = true"),
    ),
    refused=("kimi-linear-normed",),
    sizes={"kimi-linear-48b": 49.1, "kimi-linear-slice": 2.347},
    loaded=("kimi-linear",),
)  # fmt: skip
