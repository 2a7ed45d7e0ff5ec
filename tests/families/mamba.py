"""Mamba and Falcon-Mamba."""

from family_rows import FamilyRows
from reference.mamba import mamba

from hybrid.quant.ggml.errors import CheckpointError

ROWS = FamilyRows(
    configs={
        "mamba-biased": {  # unpublished, but runs in transformers
            "architectures": ["MambaForCausalLM"], "hidden_size": 72, "num_hidden_layers": 3, "expand": 2,
            "state_size": 7, "conv_kernel": 3, "time_step_rank": 5, "layer_norm_epsilon": 2e-4, "use_bias": True,
            "use_conv_bias": False,
        },
        "falcon-mamba-biased": {  # unpublished, but runs in transformers
            "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "hidden_size": 56,
            "num_hidden_layers": 2, "expand": 2, "state_size": 6, "conv_kernel": 4, "time_step_rank": 9,
            "layer_norm_epsilon": 1e-5, "mixer_rms_eps": 3e-4, "use_bias": True, "use_conv_bias": False,
            "tie_word_embeddings": False,
        },
    },
    twins={"MambaForCausalLM": mamba, "FalconMambaForCausalLM": mamba},
    noise={
        "mamba-f32": 1.0e-5, "mamba-bf16": 1.1e-5, "mamba-trained-bf16": 8.6e-6, "falcon-mamba": 1.1e-5,
        "mamba-bias": 1.2e-5,
    },
    unchecked=("mamba-f32", "mamba-bf16", "mamba-trained-bf16", "falcon-mamba", "mamba-bias"),
    model_types={"MambaForCausalLM": "mamba", "FalconMambaForCausalLM": "falcon_mamba"},
    alike={"MambaLMHeadModel": "MambaForCausalLM"},
    examples={
        "falcon-mamba": {
            "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "hidden_size": 12,
            "state_size": 5, "num_hidden_layers": 2, "intermediate_size": 20, "conv_kernel": 3, "time_step_rank": 3,
            "mixer_rms_eps": 1e-5,
        },
        "mamba": {
            "architectures": ["MambaForCausalLM"], "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2,
            "expand": 3, "conv_kernel": 3, "time_step_rank": 3, "layer_norm_epsilon": 1e-6,
        },
    },
    errors=(
        ("mamba-biased", {"conv_kernel": 1}, CheckpointError, "conv_kernel = 1.*from 2 to"),
        ("mamba-biased", {"use_bias": "yes"}, CheckpointError, 'use_bias = "yes".*true or false'),
    ),
    refused=("mamba-bias", "mamba-biased", "falcon-mamba-biased"),
    mlx={"mamba": "mamba-biased"},
)  # fmt: skip
