"""Gemma 3n."""

from family_rows import N_VOCAB, FamilyRows
from reference.gemma3n import gemma3n

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Gemma3nForCausalLM"
ROWS = FamilyRows(
    configs={
        "gemma3n": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 7,
            "layer_types": [*["sliding_attention", "full_attention"] * 3, "sliding_attention"],
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "num_kv_shared_layers": 3,
            "hidden_size_per_layer_input": 20, "vocab_size_per_layer_input": N_VOCAB, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "laurel_rank": 12,
            "activation_sparsity_pattern": [0.95, 0.95, 0.4, 0.0, 0.0, 0.95, 0.0], "final_logit_softcapping": 6.0,
        },
        "gemma3n-order": {  # three streams, the second is the active one; other widths, no shared layers
            "architectures": [NAME], "hidden_size": 60, "intermediate_size": [72, 96, 64, 40], "num_hidden_layers": 4,
            "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention"], "num_attention_heads": 3,
            "num_key_value_heads": 1, "head_dim": 22, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 9,
            "vocab_size_per_layer_input": N_VOCAB + 5, "rms_norm_eps": 2e-4, "sliding_window": 7, "laurel_rank": 5,
            "altup_num_inputs": 3, "altup_active_idx": 1, "altup_correct_scale": False,
            "activation_sparsity_pattern": [0.0, 0.7, 0.0, 0.3],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 3e4, "factor": 2.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
            },
        },
    },
    twins={NAME: gemma3n},
    model_types={NAME: "gemma3n_text"},
    examples={
        "gemma3n-pictures": {
            "architectures": ["Gemma3nForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": [20, 24, 20], "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 5,
                "max_position_embeddings": 64, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 36,
                "num_kv_shared_layers": 1, "laurel_rank": 5, "activation_sparsity_pattern": [0.95, 0.0, 0.3],
                "rope_theta": 1e5, "rope_local_base_freq": 2e4,
            },
        },
    },
    errors=(
        ("gemma3n", {"altup_num_inputs": 1}, CheckpointError, "altup_num_inputs = 1.*from 2"),
        ("gemma3n", {"altup_active_idx": 4}, CheckpointError, "altup_active_idx = 4.*from 0 to 3"),
        (
            "gemma3n", {"activation_sparsity_pattern": [0.5] * 6}, CheckpointError,
            "activation_sparsity_pattern = .*7 shares from 0",
        ),
        ("gemma3n", {"activation_sparsity_pattern": 0.5}, CheckpointError, "activation_sparsity_pattern = 0.5"),
        ("gemma3n", {"activation_sparsity_pattern": [1.0] * 7}, CheckpointError, "activation_sparsity_pattern"),
        ("gemma3n", {"intermediate_size": [64] * 5}, CheckpointError, "intermediate_size = .*7 widths"),
        ("gemma3n", {"num_kv_shared_layers": 6}, CheckpointError, "num_kv_shared_layers = 6.*a layer of each kind"),
        ("gemma3n", {"sliding_window": None}, CheckpointError, "sliding_window"),
        ("gemma3n", {"num_key_value_heads": 4}, CheckpointError, "num_key_value_heads = 4.*a divisor of the 6"),
        ("gemma3n", {"hidden_activation": "silu"}, UnsupportedError, "hidden_activation"),
    ),
    converted={
        "gemma3n": {
            "model_type": "gemma3n_text", "vocab_size_per_layer_input": N_VOCAB - 9, "altup_active_idx": 0,
            "altup_num_inputs": 4, "intermediate_size": [136] * 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    },
    refused=("gemma3n", "gemma3n-order"),
    sizes={"gemma3n-e2b": 4.458 - 0.021, "gemma3n-e4b": 6.87},  # without keys of layers that do not use them
    loaded=("gemma3n",),
)  # fmt: skip
