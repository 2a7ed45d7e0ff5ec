"""dots.llm1."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Dots1ForCausalLM"
ROWS = FamilyRows(
    configs={
        "dots1": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
            "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_shared_experts": 2,
            "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sliding_window": None,
            "tie_word_embeddings": False,
        },
        "dots1-groups": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
            "n_routed_experts": 12, "num_experts_per_tok": 5, "moe_intermediate_size": 32, "n_shared_experts": 1,
            "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5, "sliding_window": 9, "max_window_layers": 1,
            "tie_word_embeddings": False,
        },
    },
    repeated=("dots1-groups",),
    twins={NAME: partial(plain, s=Switches(normed="heads"))},
    model_types={NAME: "dots1"},
    errors=(
        ("dots1", {"scoring_func": "softmax"}, UnsupportedError, "scoring_func = .softmax. is not supported"),
        ("dots1-groups", {"n_group": 5}, CheckpointError, "n_group = 5.*groups of two or more of the 12 experts"),
        ("dots1", {"n_shared_experts": None}, CheckpointError, "n_shared_experts"),
    ),
    notes=(
        ("dots1", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("dots1", {"num_key_value_heads": 1}, "as many heads of keys as of queries"),
        ("dots1", {"attention_bias": True}, "no bias in this architecture"),
        ("dots1", {"sliding_window": 9, "max_window_layers": 2}, "beyond 9 tokens its results differ"),
    ),
    converted={"dots1": {"model_type": "dots1", "scoring_func": "sigmoid"}},
    refused=("dots1-groups",),
    sizes={"dots.llm1": 142.8},
)  # fmt: skip
