"""Qwen1.5-MoE and Qwen2-MoE."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Qwen2MoeForCausalLM"
ROWS = FamilyRows(
    configs={
        "qwen2moe": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 128, "tie_word_embeddings": False,
        },
        "qwen2moe-window": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
            "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
            "shared_expert_intermediate_size": 96, "mlp_only_layers": [1], "qkv_bias": False,
            "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3, "tie_word_embeddings": False,
        },
    },
    repeated=("qwen2moe-window",),
    twins={NAME: partial(plain, s=Switches(shared="shared_expert"))},
    model_types={NAME: "qwen2_moe"},
    errors=(
        (
            "qwen2moe", {"shared_expert_intermediate_size": 0}, CheckpointError,
            "shared_expert_intermediate_size = 0.*from 1",
        ),
        ("qwen2moe-window", {"sliding_window": 0}, CheckpointError, "sliding_window = 0.*from 1"),
    ),
    notes=(
        ("qwen2moe", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("qwen2moe", {"norm_topk_prob": True}, "llama.cpp takes norm_topk_prob = false"),
        ("qwen2moe", {"mlp_only_layers": [1]}, "all layers have experts"),
        ("qwen2moe", {"use_sliding_window": True, "sliding_window": 9}, "beyond 9 tokens its results differ"),
    ),
    converted={"qwen2moe": {"model_type": "qwen2_moe"}},
    refused=("qwen2moe-window",),
    sizes={"qwen1.5-moe-a2.7b": 14.32},
)  # fmt: skip
