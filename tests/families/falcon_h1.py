"""Falcon-H1."""

from family_rows import FamilyRows
from reference.falcon_h1 import falcon_h1

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "FalconH1ForCausalLM"
ROWS = FamilyRows(
    configs={
        "falcon-h1": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "mamba_d_ssm": 112, "mamba_n_heads": 7,
            "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 12, "mamba_d_conv": 3, "mamba_rms_norm": False,
            "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": True, "key_multiplier": 0.6,
            "attention_in_multiplier": 1.1, "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25,
            "ssm_out_multiplier": 0.7, "embedding_multiplier": 3.0, "lm_head_multiplier": 0.8,
            "mlp_multipliers": [0.9, 0.8], "ssm_multipliers": [0.8, 1.1, 0.7, 0.6, 1.3],
        },
        "falcon-h1-normed": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "mamba_d_ssm": 96, "mamba_n_heads": 6,
            "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_rms_norm": True,
            "mamba_norm_before_gate": False, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": False,
        },
        # unpublished, but runs in transformers: all possible biases; bounds of steps that the random weights exceed
        "falcon-h1-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "mamba_d_ssm": 144, "mamba_n_heads": 9,
            "mamba_d_head": 16, "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3, "mamba_rms_norm": True,
            "mamba_norm_before_gate": True, "projectors_bias": True, "rms_norm_eps": 2e-4, "rope_theta": 1e5,
            "tie_word_embeddings": False, "key_multiplier": 0.6, "attention_in_multiplier": 1.1,
            "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.7,
            "embedding_multiplier": 3.0, "lm_head_multiplier": 0.8, "mlp_multipliers": [0.9, 0.8],
            "ssm_multipliers": [0.8, 1.1, 0.7, 0.6, 1.3], "mamba_proj_bias": True, "mamba_conv_bias": False,
            "attention_bias": True, "mlp_bias": True, "time_step_limit": [0.09, 0.4],
        },
    },
    twins={NAME: falcon_h1},
    noise={"falcon-h1": 2.1e-5, "falcon-h1-gate": 6.4e-5},
    unchecked=("falcon-h1-gate",),
    model_types={NAME: "falcon_h1"},
    examples={
        "falcon-h1-expanded": {
            "architectures": [NAME], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "mamba_n_heads": 4, "mamba_d_head": 12,
            "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3, "mamba_d_ssm": None, "mamba_expand": 2,
            "head_dim": 8, "rms_norm_eps": 1e-5,
        },
    },
    errors=(
        ("falcon-h1", {"ssm_multipliers": [1.0]}, CheckpointError, "ssm_multipliers = .*5 numbers"),
        ("falcon-h1", {"mlp_multipliers": [1.0, "a"]}, CheckpointError, 'mlp_multipliers = "a".*a finite number'),
        ("falcon-h1", {"attention_bias": 1}, CheckpointError, "attention_bias = 1.*true or false"),
        (
            "falcon-h1", {"hidden_act": "gelu"}, UnsupportedError,
            'hidden_act = "gelu" is not supported, only "silu" or "swish" is',
        ),
        ("falcon-h1", {"head_dim": 23}, CheckpointError, "head_dim = 23.*even size"),
    ),
    notes=(
        ("falcon-h1", {"mamba_proj_bias": True}, "Mamba layers have no biases"),
        ("falcon-h1", {"projectors_bias": True}, "Mamba layers have no biases"),
        ("falcon-h1", {"attention_bias": True}, "leaves out the bias of attention's output"),
        ("falcon-h1", {"mamba_rms_norm": True}, "applies Mamba's gate before the norm"),
        ("falcon-h1", {"time_step_limit": [0.01, 0.5]}, "does not keep step sizes within 0.01 and 0.5"),
    ),
    converted={"falcon-h1": {}},
    refused=("falcon-h1-gate", "falcon-h1-biased"),
    sizes={"falcon-h1-1.5b": 1.48},
    loaded=("falcon-h1",),
)  # fmt: skip
