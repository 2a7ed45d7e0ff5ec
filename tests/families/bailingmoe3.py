"""Ling 3."""

from family_rows import FamilyRows
from reference.kimi import ling

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "BailingHybridForCausalLM"
ROWS = FamilyRows(
    configs={
        "bailing-hybrid": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "layer_group_size": 2, "first_k_dense_replace": 1, "num_attention_heads": 5, "num_key_value_heads": 5,
            "kv_lora_rank": 36, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "head_dim": 16,
            "short_conv_kernel_size": 3, "kda_lower_bound": -3.5, "num_experts": 12, "num_experts_per_token": 3,
            "moe_intermediate_size": 64, "num_shared_experts": 2, "num_expert_group": 4, "topk_group": 2,
            "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-6, "rope_theta": 5e4, "tie_word_embeddings": False,
        },
    },
    twins={NAME: ling},
    noise={"bailing-hybrid": 2.2e-5},
    model_types={NAME: "bailing_hybrid"},
    alike={"BailingMoeV3ForCausalLM": NAME},
    errors=(
        ("bailing-hybrid", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1.*expected 5"),
        ("bailing-hybrid", {"kda_safe_gate": False}, UnsupportedError, "kda_safe_gate = false"),
        ("bailing-hybrid", {"kda_lower_bound": 1.0}, CheckpointError, "kda_lower_bound = 1.*a negative number"),
        ("bailing-hybrid", {"no_kda_lora": False}, UnsupportedError, "no_kda_lora = false"),
        ("bailing-hybrid", {"q_lora_rank": 20}, UnsupportedError, "q_lora_rank = 20"),
        ("bailing-hybrid", {"score_function": "softmax"}, UnsupportedError, "score_function = .softmax."),
        ("bailing-hybrid", {"expert_swiglu_limit_list": [7.0]}, UnsupportedError, "expert_swiglu_limit_list = .7"),
        ("bailing-hybrid", {"num_expert_group": None}, CheckpointError, "has no num_expert_group or n_group"),
        ("bailing-hybrid", {"topk_group": None}, CheckpointError, "has no topk_group"),
        (
            "bailing-hybrid", {"moe_shared_expert_intermediate_size": 64}, CheckpointError,
            "= 64.*expected 128, of 2 experts",
        ),
        (
            "bailing-hybrid", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, UnsupportedError,
            "type = .yarn. is not supported",
        ),
    ),
    notes=(
        ("bailing-hybrid", {"linear_num_heads": 4}, "as many heads as attention"),
        ("bailing-hybrid", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
    ),
    as_published={"bailing-hybrid": {"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_moe_v3"}},
    sizes={"ling-3-tiny": 7.9},
    loaded=("bailing-hybrid",),
)  # fmt: skip
