"""DeepSeek-V3.2."""

from typing import Any

from family_rows import FamilyRows
from reference.deepseek32 import deepseek32

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "DeepseekV32ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "kv_lora_rank": 36,
    "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "num_attention_heads": 3,
    "num_key_value_heads": 3, "first_k_dense_replace": 1, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "n_shared_experts": 2, "routed_scaling_factor": 1.7, "rope_theta": 2e4,
    "q_lora_rank": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "n_group": 4, "topk_group": 2,
    "index_n_heads": 13, "index_head_dim": 18, "index_topk": 9,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "deepseek-v32": _SIZES,
        "deepseek-v32-yarn": {
            **_SIZES, "n_group": 1, "topk_group": 1, "index_n_heads": 21, "index_head_dim": 64, "index_topk": 17,
            "rms_norm_eps": 1e-6, "norm_topk_prob": False, "rope_scaling": {
                "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 24, "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
    },
    twins={NAME: deepseek32},
    model_types={NAME: "deepseek_v32"},
    errors=(
        ("deepseek-v32", {"q_lora_rank": None}, CheckpointError, "q_lora_rank = null"),
        ("deepseek-v32", {"index_head_dim": 8}, CheckpointError, "index_head_dim = 8"),
        ("deepseek-v32", {"index_topk": 0}, CheckpointError, "index_topk = 0"),
        ("deepseek-v32", {"topk_method": "greedy"}, UnsupportedError, 'topk_method = "greedy"'),
    ),
    converted={"deepseek-v32": {"model_type": "deepseek_v32", "scoring_func": "sigmoid"}},
    refused=("deepseek-v32",),  # it turns index vectors of 64 values or a multiple of them
)  # fmt: skip
