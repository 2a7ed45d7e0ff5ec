"""GLM-5.3-Flash, whose attention selects pools of tokens, on residual streams."""

from family_rows import FamilyRows
from reference.glm5_next import glm5_next

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Glm5NextForConditionalGeneration"
ROWS = FamilyRows(
    configs={
        # the first layer that selects comes before one with the delta rule, the second before one that shares
        "glm5-next-streams": {  # not in llama.cpp: three streams, another number of heads in the delta rule, tied
            "architectures": [NAME], "hidden_size": 80, "intermediate_size": 136, "num_hidden_layers": 5,
            "rms_norm_eps": 2e-4, "num_attention_heads": 3, "num_key_value_heads": 3,
            "layer_types": [
                "indexed_attention", "linear_attention", "indexed_attention", "indexed_attention", "linear_attention",
            ],
            "indexer_types": ["full", "full", "full", "shared", "full"], "q_lora_rank": 28, "kv_lora_rank": 36,
            "qk_nope_head_dim": 17, "qk_rope_head_dim": 0, "v_head_dim": 20, "linear_num_heads": 5,
            "linear_head_dim": 12, "linear_conv_kernel_dim": 3, "linear_lower_bound": -3.5, "index_n_heads": 14,
            "index_head_dim": 20, "index_kpool": 3, "index_topk": 9, "hc_mult": 3, "hc_sinkhorn_iters": 3,
            "hc_eps": 1e-3, "mlp_layer_types": ["dense", *["sparse"] * 4], "n_routed_experts": 12,
            "num_experts_per_tok": 3, "moe_intermediate_size": 56, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
            "swiglu_limit": 0.6, "routed_scaling_factor": 1.7, "tie_word_embeddings": True,
        },
        "glm5-next-plain": {  # decays without a bound, unscaled weights of experts
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
            "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 20, "kv_lora_rank": 33,
            "qk_nope_head_dim": 9, "qk_rope_head_dim": 0, "v_head_dim": 7, "linear_num_heads": 2, "linear_head_dim": 8,
            "linear_conv_kernel_dim": 4, "linear_lower_bound": None, "index_n_heads": 12, "index_head_dim": 9,
            "index_kpool": 5, "index_topk": 10, "hc_mult": 4, "hc_sinkhorn_iters": 1, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": False,
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: glm5_next},
    noise={"glm5-next": 4.0e-5},
    model_types={NAME: "glm5_next"},
    examples={
        "glm5-next-published": {
            "architectures": [NAME], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 5,
                "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 64, "q_lora_rank": 7,
                "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 0, "v_head_dim": 4, "index_n_heads": 2,
                "index_head_dim": 6, "index_kpool": 2, "index_topk": 6, "index_topk_freq": 2,
                "index_skip_topk_offset": 2, "layer_types": ["linear_attention"] * 3 + ["full_attention"] * 2,
                "first_k_dense_replace": 2,
                "linear_attn_config": {
                    "head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 3, "gate_lower_bound": -4.0,
                    "safe_gate": True,
                },
                "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "mhc": True,
                "mla_use_nope": True, "scoring_func": "sigmoid",
            },
        },
    },
    errors=(
        ("glm5-next-plain", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1.*expected 2"),
        (
            "glm5-next-plain", {"qk_rope_head_dim": 8}, UnsupportedError,
            "qk_rope_head_dim = 8 is not supported, only 0 is",
        ),
        ("glm5-next-plain", {"q_lora_rank": None}, CheckpointError, "has no q_lora_rank"),
        ("glm5-next-plain", {"index_topk": 12}, CheckpointError, "index_topk = 12.*a multiple of index_kpool = 5"),
        (
            "glm5-next-plain", {"index_kpool_always_select_tail": False}, UnsupportedError,
            "index_kpool_always_select_tail = false",
        ),
        (
            "glm5-next-plain", {"layer_types": ["mamba"] * 4}, CheckpointError,
            "layer_types = .*4 times linear_attention or indexed_",
        ),
        (
            "glm5-next-plain", {"indexer_types": ["full"] * 3}, CheckpointError,
            "indexer_types = .*4 times full or shared",
        ),
        (
            "glm5-next-plain", {"indexer_types": [*["full"] * 3, "shared"]}, UnsupportedError,
            "layer 3 take what layer 2 chose",
        ),
        ("glm5-next-plain", {"index_topk_pattern": "FFFS"}, UnsupportedError, "index_topk_pattern makes layer 3 take"),
        ("glm5-next-plain", {"index_topk_freq": 3}, UnsupportedError, "index_topk_freq makes layer 3 take"),
        (
            "glm5-next-streams", {"indexer_types": ["full", "full", "full", "shared", "x"]}, CheckpointError,
            "indexer_types = ",
        ),
        (
            "glm5-next-plain", {"linear_lower_bound": 1.0}, CheckpointError,
            "linear_lower_bound = 1.0.*from -80 to below 0",
        ),
        (
            "glm5-next-plain", {"linear_attn_config": {"gate_lower_bound": 0.5, "num_heads": 2}}, CheckpointError,
            "linear_attn_config: gate_lower_bound = 0.5.*from -80",
        ),
        ("glm5-next-plain", {"hc_mult": 0}, CheckpointError, "hc_mult = 0"),
        ("glm5-next-plain", {"swiglu_limit": 0.0}, CheckpointError, "swiglu_limit = 0.0.*a positive number"),
        ("glm5-next-plain", {"mhc": False}, UnsupportedError, "mhc = false"),
        ("glm5-next-plain", {"scoring_func": "softmax"}, UnsupportedError, "scoring_func = .softmax."),
        ("glm5-next-plain", {"attention_bias": True}, UnsupportedError, "attention_bias = true"),
    ),
    notes=(
        ("glm5-next-plain", {"linear_num_heads": 4}, "as many heads as attention"),
        ("glm5-next-plain", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
        ("glm5-next-plain", {"hc_mult": 3}, "a model has 4 residual streams"),
        ("glm5-next-plain", {"index_kpool": 1}, "a pool has two tokens or more"),
    ),
    refused=("glm5-next-streams",),
    sizes={"glm-5.3-flash": 320 - 7.3, "glm-5.3-slice": 3.245},  # the whole is stated with a layer that guesses ahead
    loaded=("glm5-next-plain",),
)  # fmt: skip
