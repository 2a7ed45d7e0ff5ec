"""ERNIE 4.5."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

ROWS = FamilyRows(
    configs={
        "ernie4_5": {
            "architectures": ["Ernie4_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        },
        "ernie4_5-biased": {
            "architectures": ["Ernie4_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
            "rms_norm_eps": 1e-6, "use_bias": True, "tie_word_embeddings": False,
        },
        "ernie4_5-moe": {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 128,
            "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "rope_theta": 5e5, "moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 64,
            "moe_num_shared_experts": 1, "moe_layer_start_index": 1,
        },
        "ernie4_5-moe-order": {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 5, "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
            "rope_theta": 1e5, "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 32,
            "moe_num_shared_experts": 0, "moe_layer_start_index": 0, "moe_layer_end_index": 3, "moe_layer_interval": 2,
            "tie_word_embeddings": False,
        },
    },
    repeated=("ernie4_5-biased", "ernie4_5-moe-order"),
    twins={
        "Ernie4_5ForCausalLM": partial(plain, s=Switches(neox=False, theta=5e5)),
        "Ernie4_5_MoeForCausalLM": partial(plain, s=Switches(neox=False, theta=5e5)),
    },
    model_types={"Ernie4_5ForCausalLM": "ernie4_5", "Ernie4_5_MoeForCausalLM": "ernie4_5_moe"},
    alike={"Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM"},
    errors=(
        ("ernie4_5-moe", {"moe_norm_min": 0.5}, UnsupportedError, "moe_norm_min = 0.5 is not supported"),
        ("ernie4_5-moe", {"use_bias": True}, UnsupportedError, "use_bias = true is not supported"),
        ("ernie4_5-moe", {"moe_k": 9}, CheckpointError, "moe_k = 9.*from 1 to 7"),
    ),
    notes=(
        ("ernie4_5", {"use_bias": True}, "no place for biases of feed-forward parts"),
        ("ernie4_5-moe", {"moe_layer_end_index": 1}, "here some have not"),
        ("ernie4_5-moe", {"moe_layer_interval": 2}, "here some have not"),
    ),
    converted={"ernie4_5": {"model_type": "ernie4_5"}, "ernie4_5-moe": {"model_type": "ernie4_5_moe"}},
    refused=("ernie4_5-biased", "ernie4_5-moe-order"),
    sizes={"ernie-4.5-0.3b": 0.3607, "ernie-4.5-21b-a3b": 21.83},
)  # fmt: skip
