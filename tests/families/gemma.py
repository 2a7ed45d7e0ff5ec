"""Gemma 1 to 3."""

from functools import partial

from family_rows import FamilyRows
from reference.gemma import gemma
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

ROWS = FamilyRows(
    configs={
        "gemma": {
            "architectures": ["GemmaForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "rms_norm_eps": 2e-5,
            "hidden_act": "gelu",
        },
        "gemma2": {
            "architectures": ["Gemma2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
        },
        "gemma2-order": {
            "architectures": ["Gemma2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "query_pre_attn_scalar": 32, "rope_scaling": {"rope_type": "linear", "factor": 3.0},
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
        "gemma3": {
            "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "query_pre_attn_scalar": 32, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        "gemma3-order": {
            "architectures": ["Gemma3ForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 5,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "query_pre_attn_scalar": 32,
            "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
        },
        "gemma3-period": {
            "architectures": ["Gemma3ForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6,
            "sliding_window": 9, "query_pre_attn_scalar": 32, "sliding_window_pattern": 3,
        },
    },
    twins={
        "GemmaForCausalLM": partial(plain, s=Switches(plus=1.0, head=256, scaled=True)), "Gemma2ForCausalLM": gemma,
        "Gemma3ForCausalLM": gemma,
    },
    model_types={"GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text"},
    examples={
        "gemma3-pictures": {
            "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 7,
                "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 5,
                "query_pre_attn_scalar": 7, "max_position_embeddings": 64,
            },
        },
    },
    errors=(
        ("gemma", {"attention_bias": True}, UnsupportedError, "attention_bias = true is not supported"),
        ("gemma", {"hidden_act": "silu"}, UnsupportedError, "hidden_act = .silu. is not supported"),
        (
            "gemma2", {"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, UnsupportedError,
            "only default, linear and yarn are",
        ),
        ("gemma3", {"sliding_window_pattern": 0}, CheckpointError, "sliding_window_pattern = 0"),
        (
            "gemma3", {"sliding_window": None}, CheckpointError,
            "sliding_window = null .*for the layers of sliding_attention",
        ),
        (
            "gemma3-order", {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}}, UnsupportedError,
            "rope_type",
        ),
    ),
    notes=(("gemma2", {"query_pre_attn_scalar": 64}, "another query_pre_attn_scalar than 64"),),
    converted={"gemma3": {}, "gemma": {"model_type": "gemma", "vocab_size": 2000}},
    mlx={"gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "gemma3": "gemma3"},
    sizes={"gemma-2b": 2.506},
)  # fmt: skip
