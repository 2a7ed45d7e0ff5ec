"""LFM2."""

from family_rows import FamilyRows
from reference.lfm2 import lfm2

from hybrid.quant.ggml.errors import CheckpointError

ROWS = FamilyRows(
    configs={
        "lfm2": {
            "architectures": ["Lfm2ForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 4,
            "block_multiple_of": 32, "layer_types": ["conv", "full_attention", "conv", "conv"],
            "num_attention_heads": 3, "num_key_value_heads": 1, "conv_L_cache": 3, "norm_eps": 1e-5, "rope_theta": 1e6,
        },
        "lfm2moe-scaled": {
            "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "num_attention_heads": 3,
            "num_key_value_heads": 1, "conv_L_cache": 3, "conv_bias": True, "norm_eps": 1e-5, "rope_theta": 1e5,
            "num_dense_layers": 1, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
            "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 1.6,
        },
        "lfm2moe": {
            "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_attention_heads": 6,
            "num_key_value_heads": 2, "conv_L_cache": 4, "norm_eps": 1e-5, "rope_theta": 1e6, "num_dense_layers": 1,
            "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        },
    },
    encoders={
        "lfm2-bidirectional": {
            "architectures": ["Lfm2BidirectionalModel"], "vocab_size": 2000, "hidden_size": 60,
            "intermediate_size": 130, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
            "max_position_embeddings": 300, "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "conv_L_cache": 3, "norm_eps": 1e-5, "rope_theta": 30000.0, "block_multiple_of": 8, "pad_token_id": 0,
        },
    },
    twins={"Lfm2ForCausalLM": lfm2, "Lfm2MoeForCausalLM": lfm2},
    noise={"lfm2": 1.9e-5},
    model_types={"Lfm2MoeForCausalLM": "lfm2_moe"},
    alike={"LFM2ForCausalLM": "Lfm2ForCausalLM", "Lfm2Model": "Lfm2BidirectionalModel"},
    examples={
        "lfm2-published": {
            "architectures": ["Lfm2ForCausalLM"], "hidden_size": 24, "block_ff_dim": 30, "num_hidden_layers": 3,
            "full_attn_idxs": [1], "block_multiple_of": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
            "conv_L_cache": 3, "norm_eps": 1e-5, "tie_embedding": True,
        },
        "lfm2-vl": {
            "architectures": ["Lfm2VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1, "layer_types": ["conv", "full_attention", "conv"],
                "max_position_embeddings": 64, "conv_L_cache": 3, "block_multiple_of": 8,
                "block_ffn_dim_multiplier": 1.5, "norm_eps": 1e-5,
            },
        },
        "lfm2-vl-indices": {
            "architectures": ["Lfm2VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1, "full_attn_idxs": [1],
                "max_position_embeddings": 64, "block_multiple_of": 8,
            },
        },
        **{
            f"{name}-indices": {
                "architectures": [name], "hidden_size": 24, "block_ff_dim": 30, "num_hidden_layers": 3,
                "num_attention_heads": 4, "num_key_value_heads": 2, "full_attn_idxs": [1], "conv_L_cache": 3,
                "block_multiple_of": 4, "rope_theta": 1e5, "norm_eps": 1e-5,
            }
            for name in ("Lfm2Model", "Lfm2BidirectionalModel")
        },
    },
    errors=(
        (
            "lfm2", {"layer_types": None, "full_attn_idxs": [9]}, CheckpointError,
            "full_attn_idxs = .9.*numbers of the 4 layers",
        ),
        ("lfm2", {"layer_types": ["conv"] * 3}, CheckpointError, "layer_types = .*4 times conv or full_attention"),
        ("lfm2moe", {"num_experts_per_tok": 9}, CheckpointError, "num_experts_per_tok = 9.*from 1 to 5"),
    ),
    converted={
        "lfm2": {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0},
        "lfm2moe": {},
        "lfm2-bidirectional": {
            "model_type": "lfm2", "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True, "conv_bias": False,
        },
    },
    refused=("lfm2moe-scaled",),
    mlx={"lfm2": "lfm2"},
    sizes={"lfm2-1.2b": 1.170},
    loaded=("lfm2",),
)  # fmt: skip
