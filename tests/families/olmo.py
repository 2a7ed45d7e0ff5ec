"""OLMo 2, OLMo 3 and OLMoE."""

from functools import partial

from family_rows import FamilyRows
from reference.llama import llama
from reference.plain import POST, Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

ROWS = FamilyRows(
    configs={
        "olmo2": {
            "architectures": ["Olmo2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 5e5,
            "tie_word_embeddings": False,
        },
        "olmo3": {
            "architectures": ["Olmo3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "sliding_window": 11,
            "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
            "tie_word_embeddings": False,
        },
        "olmo3-order": {
            "architectures": ["Olmo3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 3, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "sliding_window": 9,
            "head_dim": 32, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "rope_scaling": {"rope_type": "linear", "factor": 3.0}, "rope_theta": 2e5,  # of layers without a window
        },
        "olmoe-normed": {
            "architectures": ["OlmoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-4, "rope_theta": 1e4,
            "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True, "attention_bias": True,
            "clip_qkv": 1.25, "tie_word_embeddings": False,
        },
        "olmoe": {
            "architectures": ["OlmoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": False, "tie_word_embeddings": False,
        },
    },
    repeated=("olmo3-order",),
    twins={
        "Olmo2ForCausalLM": llama,
        "Olmo3ForCausalLM": partial(plain, s=Switches((), POST, "all", period=4, theta=5e5, apart=True)),
        "OlmoeForCausalLM": llama,
    },
    model_types={"Olmo2ForCausalLM": "olmo2", "Olmo3ForCausalLM": "olmo3", "OlmoeForCausalLM": "olmoe"},
    errors=(
        (
            "olmo3", {"rope_parameters": {"rope_type": "yarn"}}, CheckpointError,
            "rope_parameters = .*an object full_attention",
        ),
        (
            "olmo3",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "yarn"},
                },
            },
            UnsupportedError, "rope_type = .yarn",
        ),
        ("olmo3", {"sliding_window": None}, CheckpointError, "layer_types.*no sliding_attention"),
        (
            "olmo3", {"layer_types": ["sliding_attention"]}, CheckpointError,
            "layer_types = .*5 times sliding_attention or full",
        ),
    ),
    notes=(
        ("olmo3", {"rope_theta": 1e4}, "one rope_theta on all layers"),
        ("olmo3", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("olmo3", {"attention_bias": True}, "no bias in this architecture"),
    ),
    converted={"olmo2": {}, "olmoe": {}, "olmo3": {"model_type": "olmo3"}, "olmo3-order": {"model_type": "olmo3"}},
    refused=("olmoe-normed",),
    mlx={"olmo2": "olmo2", "olmoe": "olmoe"},
    sizes={"olmo3-7b": 7.30},
)  # fmt: skip
