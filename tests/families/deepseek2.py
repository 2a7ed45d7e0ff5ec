"""DeepSeek-V2 and V3."""

from family_rows import Config, FamilyRows
from reference.deepseek import deepseek

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

_SIZES: Config = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12, "v_head_dim": 28, "num_attention_heads": 3, "num_key_value_heads": 3,
    "first_k_dense_replace": 1, "n_routed_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
    "n_shared_experts": 2, "routed_scaling_factor": 1.7, "rope_theta": 2e4, "tie_word_embeddings": False,
}  # fmt: skip
_YARN: Config = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 24}
_V2: Config = {"architectures": ["DeepseekV2ForCausalLM"], **_SIZES}
_V3: Config = {"architectures": ["DeepseekV3ForCausalLM"], **_SIZES, "q_lora_rank": 40}
ROWS = FamilyRows(
    configs={
        "deepseek-v2": {
            **_V2, "q_lora_rank": None, "rms_norm_eps": 1e-6,
            "rope_scaling": {**_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
        "deepseek-v2-groups": {
            **_V2, "q_lora_rank": 40, "rms_norm_eps": 1e-5, "topk_method": "group_limited_greedy", "n_group": 4,
            "topk_group": 2,
        },
        "deepseek-v3": {**_V3, "rms_norm_eps": 1e-6, "n_group": 4, "topk_group": 2},
        "deepseek-v3-yarn": {
            **_V3, "rms_norm_eps": 1e-6, "n_group": 3, "topk_group": 1, "norm_topk_prob": False,
            "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    },
    twins={"DeepseekV2ForCausalLM": deepseek, "DeepseekV3ForCausalLM": deepseek},
    model_types={"DeepseekV2ForCausalLM": "deepseek_v2", "DeepseekV3ForCausalLM": "deepseek_v3"},
    errors=(
        ("deepseek-v2", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1.*expected 3"),
        ("deepseek-v2", {"qk_rope_head_dim": 11}, CheckpointError, "qk_rope_head_dim = 11.*an even number"),
        ("deepseek-v2", {"norm_topk_prob": True}, UnsupportedError, "norm_topk_prob = true"),
        ("deepseek-v2", {"topk_method": "noaux_tc"}, UnsupportedError, "topk_method = .noaux_tc."),
        ("deepseek-v2", {"scoring_func": "sigmoid"}, UnsupportedError, "scoring_func = .sigmoid."),
        (
            "deepseek-v2", {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0}}, UnsupportedError,
            "mscale = 1 and msc.* = 0",
        ),
        (
            "deepseek-v2", {"rope_scaling": {"type": "linear", "factor": 4.0}}, UnsupportedError,
            "rope_type = 'linear' is not supp",
        ),
        ("deepseek-v2-groups", {"n_group": 5}, CheckpointError, "n_group = 5.*groups of two or more"),
        ("deepseek-v3", {"n_group": None}, CheckpointError, "has no n_group"),
        ("deepseek-v3", {"rope_interleave": False}, UnsupportedError, "rope_interleave = false"),
        ("deepseek-v3", {"scoring_func": "softmax"}, UnsupportedError, "scoring_func = .softmax."),
    ),
    notes=(
        ("deepseek-v2-groups", {"q_lora_rank": None}, "with 3 layers queries have latent vectors there"),
        ("deepseek-v2-groups", {}, "chooses groups of experts by their two best"),
        ("deepseek-v3", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
    ),
    converted={
        "deepseek-v2-groups": {"model_type": "deepseek_v2", "scoring_func": "softmax"},
        "deepseek-v3-yarn": {"model_type": "deepseek_v3", "scoring_func": "sigmoid"},
    },
    refused=("deepseek-v2",),
    different=("deepseek-v2-groups",),
    sizes={"deepseek-v2-lite": 15.7},
    loaded=("deepseek-v2",),
)  # fmt: skip
