"""DeepSeek-V4, whose attention sees a window and entries that stand for groups of tokens."""

from family_rows import FamilyRows
from reference.deepseek4 import deepseek4

NAME = "DeepseekV4ForCausalLM"
ROWS = FamilyRows(
    configs={
        "deepseek4": {  # other group sizes than published; an output group has a part of a head
            "architectures": [NAME], "hidden_size": 80, "num_hidden_layers": 5, "num_attention_heads": 3,
            "num_key_value_heads": 1, "head_dim": 20, "rms_norm_eps": 2e-4, "q_lora_rank": 28, "o_groups": 2,
            "o_lora_rank": 9, "sliding_window": 9,
            "layer_types": [
                "compressed_sparse_attention", "sliding_attention", "heavily_compressed_attention",
                "compressed_sparse_attention", "heavily_compressed_attention",
            ],
            "compress_rates": {"compressed_sparse_attention": 3, "heavily_compressed_attention": 7},
            "rope_parameters": {
                "main": {"rope_type": "default", "rope_theta": 3e3, "partial_rotary_factor": 0.6},
                "compress": {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.6},
            },
            "index_n_heads": 14, "index_head_dim": 16, "index_topk": 4, "hc_mult": 3, "hc_sinkhorn_iters": 3,
            "hc_eps": 1e-3, "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe", "moe"], "n_routed_experts": 7,
            "num_experts_per_tok": 3, "moe_intermediate_size": 40, "swiglu_limit": 0.6, "routed_scaling_factor": 1.7,
            "tie_word_embeddings": False,
        },
        "deepseek4-yarn": {  # as published
            "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-6, "q_lora_rank": 32, "o_groups": 2,
            "o_lora_rank": 32, "sliding_window": 11, "compress_ratios": [4, 128, 0, 4, 0], "qk_rope_head_dim": 16,
            "rope_theta": 1e4, "compress_rope_theta": 1.6e5,
            "rope_scaling": {
                "type": "yarn", "factor": 4, "original_max_position_embeddings": 128, "beta_fast": 32, "beta_slow": 1,
            },
            "index_n_heads": 12, "index_head_dim": 64, "index_topk": 3, "hc_mult": 4, "hc_sinkhorn_iters": 5,
            "hc_eps": 1e-6, "num_hash_layers": 1, "n_routed_experts": 6, "num_experts_per_tok": 2,
            "n_shared_experts": 1, "moe_intermediate_size": 32, "swiglu_limit": 1.5, "routed_scaling_factor": 1.5,
            "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "num_nextn_predict_layers": 1,
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: deepseek4},
    noise={"deepseek-v4": 2.2e-5},
    model_types={NAME: "deepseek_v4"},
    converted={"deepseek4-yarn-mxfp4": {"model_type": "deepseek_v4"}},
    refused=("deepseek4", "deepseek-v4"),  # entries for groups of other sizes than 4 and 128 tokens
    sizes={"deepseek-v4-flash": 284.0, "deepseek-v4-slice": 3.227},
    loaded=("deepseek4",),
)  # fmt: skip
