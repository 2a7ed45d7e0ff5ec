"""GigaChat 3.5, which transformers lacks."""

from family_rows import Config, FamilyRows
from reference.gigachat import DEFAULTS, gigachat35

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "GigaChat35ForCausalLM"
_EXPERTS: Config = {
    "n_routed_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 1.7,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "gigachat35-yarn": {
            **_EXPERTS, "architectures": [NAME], "hidden_size": 80, "intermediate_size": 96, "num_hidden_layers": 3,
            "first_k_dense_replace": 1,
            "layer_types": ["full_attention", "linear_attention", "attention"], "num_attention_heads": 3,
            "q_lora_rank": None, "kv_lora_rank": 33, "qk_nope_head_dim": 17, "qk_rope_head_dim": 14, "v_head_dim": 9,
            "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 20,
            "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "linear_attn_o_norm_eps": 1e-3,
            "norm_topk_prob": False, "swiglu_limit": None, "layernorm_gating_weight": 2,
            "rms_norm_eps": 1e-5, "rope_theta": 1000.0,
            "rope_scaling": {
                "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 3.0,
                "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7,
            },
            "tie_word_embeddings": True,
        },
        "gigachat35": {
            **_EXPERTS, "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "full_attention_layers": [1, 3], "first_k_dense_replace": 1, "num_attention_heads": 5,
            "num_key_value_heads": 5, "q_lora_rank": 44, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
            "qk_rope_head_dim": 12, "v_head_dim": 28, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
            "linear_key_head_dim": 24, "linear_value_head_dim": 24, "linear_conv_kernel_dim": 3, "n_shared_experts": 2,
            "swiglu_limit": 0.9, "rms_norm_eps": 1e-5, "rope_theta": 5e4, "tie_word_embeddings": False,
        },
    },
    twins={NAME: gigachat35},
    defaults={NAME: DEFAULTS},
    published={
        NAME: {
            "vocab_size": 128256, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
            "num_hidden_layers": 40, "num_nextn_predict_layers": 3, "nextn_is_sparse": False,
            "num_attention_heads": 64, "num_key_value_heads": 64, "n_shared_experts": 1, "n_routed_experts": 256,
            "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "qk_nope_head_dim": 128, "qk_head_dim": 192, "head_dim": 64, "n_group": 1,
            "topk_group": 1, "topk_method": "noaux_tc", "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "moe_layer_freq": 1, "norm_topk_prob": True, "scoring_func": "sigmoid", "aux_loss_alpha": 0.0001,
            "hidden_act": "silu", "max_position_embeddings": 262144, "initializer_range": 0.006, "rms_norm_eps": 1e-6,
            "optimizer_eps": 1e-20, "use_cache": True, "pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2,
            "pretraining_tp": 1, "tie_word_embeddings": False, "rope_theta": 100000.0,
            "rope_scaling": {
                "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32768, "beta_fast": 32.0,
                "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            },
            "rope_interleave": True, "attention_bias": False, "attention_dropout": 0.0,
            "attention_type": "LlamaLatentAttention", "num_krope_heads": 1, "norm_type": "ZeroCenteredGatedNorm",
            "layernorm_type": "pre_post", "layernorm_gating_weight": 2.0, "gated_attention": True,
            "use_shared_expert_sigmoid": False, "use_mla_scaling_factor": True, "attention_distillation": False,
            "linear_attention_type": "Qwen3NextGatedDeltaNet", "full_attention_layers": [*range(3, 40, 4)],
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
            "linear_num_key_heads": 32, "linear_num_value_heads": 64, "linear_use_short_conv": True,
            "linear_gating_type": "gated_rmsnorm_sigmoid_zero_centered", "linear_sigmoid_gate_scale": 2.0,
            "linear_attn_o_norm_eps": 1e-6, "linear_use_legacy_qkvz_layout": False, "output_gate_type": "sigmoid",
            "swiglu_limit": 10.0,
        },
    },
    errors=(
        ("gigachat35", {"norm_type": "LlamaRMSNorm"}, UnsupportedError, 'norm_type = "LlamaRMSNorm"'),
        ("gigachat35", {"layernorm_type": None}, CheckpointError, "layernorm_type = null.*expected pre_post"),
        ("gigachat35", {"layernorm_gating_weight": 1.0}, UnsupportedError, "layernorm_gating_weight = 1.0"),
        ("gigachat35", {"linear_gating_type": "sigmoid_gate"}, UnsupportedError, "linear_gating_type = .sigmoid_gate."),
        ("gigachat35", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1"),
        ("gigachat35", {"full_attention_layers": [4]}, CheckpointError, "numbers of layers from 0 to 3"),
        (
            "gigachat35", {"layer_types": ["full_attention"] * 4}, CheckpointError,
            "layer_types = .*the same layers of attention as full_attention_layers",
        ),
        ("gigachat35", {"full_attention_layers": None}, CheckpointError, "has no layer_types"),
        ("gigachat35", {"linear_num_value_heads": 5}, CheckpointError, "a multiple of linear_num_key_heads = 2"),
        ("gigachat35", {"swiglu_limit": "none"}, CheckpointError, "swiglu_limit = .none.*a finite number"),
        ("gigachat35", {"scoring_func": "softmax"}, UnsupportedError, "scoring_func = .softmax."),
    ),
    notes=(("gigachat35", {}, "no such architecture"),),
    refused=("gigachat35", "gigachat35-yarn"),
    sizes={"gigachat-3.5-432b": 430.6},  # with its three heads 432.6
    loaded=("gigachat35",),
)  # fmt: skip
