"""Qwen2 and Qwen3."""

from family_rows import FamilyRows
from reference.llama import llama

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

ROWS = FamilyRows(
    configs={
        "qwen2": {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 7, "use_sliding_window": False, "tie_word_embeddings": True,
        },
        "qwen2-window": {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1, "tie_word_embeddings": True,
        },
        "qwen2-yarn": {  # every setting is explicit, in the older spelling
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 300.0,
            "rope_scaling": {
                "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 9.0,
                "beta_slow": 2.5, "truncate": False, "attention_factor": 1.3,
            },
            "tie_word_embeddings": True,
        },
        "qwen3": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": True,
        },
        "qwen3-window": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 10, "use_sliding_window": True, "max_window_layers": 3, "tie_word_embeddings": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "qwen3-yarn": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 128,
            },
            "tie_word_embeddings": True,
        },
        "qwen3moe-mixed": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 1e5, "num_local_experts": 6, "num_experts_per_tok": 3,
            "moe_intermediate_size": 64, "norm_topk_prob": False, "mlp_only_layers": [1], "attention_bias": True,
            "tie_word_embeddings": False,
        },
        "qwen3moe": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "norm_topk_prob": True, "tie_word_embeddings": False,
        },
        "qwen3moe-window": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "norm_topk_prob": True, "sliding_window": 12, "use_sliding_window": True,
            "tie_word_embeddings": False,
        },
    },
    twins={"Qwen2ForCausalLM": llama, "Qwen3ForCausalLM": llama, "Qwen3MoeForCausalLM": llama},
    model_types={"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe"},
    alike={"Qwen2Model": "Qwen2ForCausalLM", "Qwen3Model": "Qwen3ForCausalLM"},
    examples={
        "qwen3-window-behind": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "use_sliding_window": True,
            "sliding_window": 7, "max_window_layers": 1,
        },
        "qwen25-vl": {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"depth": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2,
                "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
                "rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 1]},
            },
        },
        "qwen25-vl-window": {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"depth": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
                "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
            },
        },
        "qwen2-vl": {
            "architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {"depth": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
                "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
            },
        },
        "qwen2-vl-flat": {  # as published
            "architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {"depth": 7},
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
            "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]},
        },
        "qwen3-vl": {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "vision_config": {"depth": 7, "deepstack_visual_indexes": [1, 2]},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2,
                "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
                "rope_parameters": {"mrope_section": [2, 1, 1]},
            },
        },
        "qwen3-scores": {
            "architectures": ["Qwen3ForSequenceClassification"], "hidden_size": 24, "intermediate_size": 20,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_labels": 3,
            "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
        },
    },
    errors=(
        (
            "qwen2", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, UnsupportedError,
            "rope_type = 'dynamic' is not supp",
        ),
        ("qwen2-yarn", {"rope_theta": 1.0}, CheckpointError, "rope_theta = 1, expected more than 1, with YaRN"),
        (
            "qwen2", {"rope_scaling": {"type": "llama3", "low_freq_factor": 5}}, CheckpointError,
            "high_freq_factor = 4, expected no less",
        ),
        ("qwen2", {"layer_types": ["sliding_attention"] * 2}, CheckpointError, "layer_types = .*no sliding_attention"),
        ("qwen2-window", {"sliding_window": 0}, CheckpointError, "sliding_window = 0.*from 1"),
        (
            "qwen2-window", {"layer_types": ["sliding"] * 3}, CheckpointError,
            "layer_types = .*3 times sliding_attention or full_att",
        ),
    ),
    converted={"qwen2": {}, "qwen3": {}, "qwen3moe": {}},
    refused=("qwen3moe-mixed",),
    different=("qwen2-window", "qwen3-window", "qwen3moe-window", "qwen2-yarn"),
    mlx={"qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe"},
)  # fmt: skip
