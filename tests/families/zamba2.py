"""Zamba2."""

from family_rows import FamilyRows
from reference.zamba import zamba

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Zamba2ForCausalLM"
ROWS = FamilyRows(
    configs={
        "zamba2": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 6,
            "num_key_value_heads": 6, "mamba_expand": 2, "n_mamba_heads": 12, "mamba_headdim": 16, "mamba_ngroups": 3,
            "mamba_d_state": 12, "mamba_d_conv": 3, "num_mem_blocks": 2, "adapter_rank": 5, "rms_norm_eps": 1e-5,
            "use_shared_attention_adapter": True, "use_mem_rope": True, "rope_theta": 1e4,
        },
        "zamba2-2.7b": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "num_attention_heads": 2,
            "num_key_value_heads": 1, "mamba_expand": 2, "n_mamba_heads": 8, "mamba_headdim": 16, "mamba_ngroups": 1,
            "mamba_d_state": 9, "mamba_d_conv": 4, "num_mem_blocks": 1, "adapter_rank": 17, "rms_norm_eps": 1e-5,
            "use_shared_attention_adapter": False, "use_mem_rope": False,
        },
        "zamba2-biased": {  # unpublished, but runs in transformers
            "architectures": [NAME], "hidden_size": 80, "intermediate_size": 104, "num_hidden_layers": 5,
            "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 5,
            "num_key_value_heads": 5, "mamba_expand": 2, "n_mamba_heads": 5, "mamba_headdim": 32, "mamba_ngroups": 1,
            "mamba_d_state": 11, "mamba_d_conv": 3, "num_mem_blocks": 1, "adapter_rank": 7, "rms_norm_eps": 4e-3,
            "add_bias_linear": True, "time_step_min": 0.12,
        },
    },
    twins={NAME: zamba},
    noise={"zamba2": 2.4e-5, "zamba2-plain": 2.4e-5},
    unchecked=("zamba2-plain",),
    model_types={NAME: "zamba2"},
    errors=(
        ("zamba2", {"use_long_context": True}, UnsupportedError, "use_long_context = true"),
        (
            "zamba2", {"hybrid_layer_ids": [1, 2]}, UnsupportedError,
            "hybrid_layer_ids = .1, 2. is not supported, only .1, 2, 4. is",
        ),
        ("zamba2", {"num_key_value_heads": 3}, CheckpointError, "num_key_value_heads = 3.*6, as adapters need"),
        ("zamba2", {"mamba_ngroups": 5}, CheckpointError, "mamba_ngroups = 5.*a divisor of the 12 heads"),
    ),
    notes=(("zamba2", {}, "no such architecture"),),
    refused=("zamba2", "zamba2-2.7b", "zamba2-plain", "zamba2-biased"),
    sizes={"zamba2-1.2b": 1.205},
    loaded=("zamba2",),
)  # fmt: skip
