"""Nemotron-H."""

from family_rows import FamilyRows
from reference.nemotron_h import nemotron_h

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "NemotronHForCausalLM"
ROWS = FamilyRows(
    configs={
        "nemotron-h": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 224, "hybrid_override_pattern": "M-*M-",
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "mamba_num_heads": 7,
            "mamba_head_dim": 16, "ssm_state_size": 12, "n_groups": 1, "conv_kernel": 3, "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": False,
        },
        "nemotron-h-moe": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 224, "hybrid_override_pattern": "MEM*E",
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "mamba_num_heads": 8,
            "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": False, "n_routed_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
            "moe_shared_expert_intermediate_size": 160, "routed_scaling_factor": 2.5,
        },
        "nemotron-h-moe-groups": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 224,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "moe"], "num_attention_heads": 3,
            "num_key_value_heads": 1, "head_dim": 32, "mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 12,
            "n_groups": 3, "conv_kernel": 3, "layer_norm_epsilon": 3e-4, "mlp_bias": True, "use_bias": True,
            "use_conv_bias": False, "tie_word_embeddings": False, "n_routed_experts": 12, "num_experts_per_tok": 5,
            "n_group": 4, "topk_group": 2, "moe_intermediate_size": 32, "n_shared_experts": 2,
            "moe_shared_expert_intermediate_size": 160, "moe_latent_size": 64, "norm_topk_prob": False,
            "routed_scaling_factor": 1.7,
        },
    },
    twins={NAME: nemotron_h},
    noise={"nemotron-h": 1.1e-5, "nemotron-h-moe": 1.2e-5, "nemotron-h-moe-v5": 1.4e-5},
    model_types={NAME: "nemotron_h"},
    examples={
        "nemotron-h-experts": {
            "architectures": [NAME], "hidden_size": 24, "intermediate_size": 20,
            "layers_block_type": ["mamba", "moe", "attention"], "num_attention_heads": 3, "num_key_value_heads": 1,
            "head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 6, "ssm_state_size": 5, "n_groups": 2,
            "conv_kernel": 3, "n_routed_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
            "moe_shared_expert_intermediate_size": 14,
        },
    },
    errors=(
        (
            "nemotron-h", {"hybrid_override_pattern": "M-X"}, CheckpointError,
            "hybrid_override_pattern = .*mamba or attention",
        ),
        ("nemotron-h", {"hybrid_override_pattern": ""}, CheckpointError, "hybrid_override_pattern"),
        ("nemotron-h", {"mlp_hidden_act": "silu"}, UnsupportedError, "mlp_hidden_act"),
        ("nemotron-h-moe", {"n_group": 2}, CheckpointError, "n_group = 2.*groups of two or more of the 5 experts"),
        (
            "nemotron-h-moe", {"n_group": 5, "n_routed_experts": 5}, CheckpointError,
            "n_group = 5.*groups of two or more",
        ),
        ("nemotron-h-moe-groups", {"n_group": 13}, CheckpointError, "n_group = 13.*from 1 to 12"),
        ("nemotron-h-moe-groups", {"topk_group": 5}, CheckpointError, "topk_group = 5.*from 1 to 4"),
        (
            "nemotron-h-moe-groups", {"topk_group": 1}, CheckpointError,
            "topk_group = 1.*groups that have the 5 experts of a token",
        ),
    ),
    refused=("nemotron-h-moe-groups",),
    mlx={"nemotron_h": "nemotron-h"},
    sizes={"nemotron-h-4b": 4.49},
    loaded=("nemotron-h",),
)  # fmt: skip
