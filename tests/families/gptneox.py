"""GPT-NeoX."""

from family_rows import FamilyRows
from reference.ungated import gptneox

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "GPTNeoXForCausalLM"
ROWS = FamilyRows(
    configs={
        "gptneox": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "rotary_pct": 0.5, "rotary_emb_base": 3000, "layer_norm_eps": 3e-4,
            "hidden_act": "gelu",
        },
        "gptneox-serial": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "use_parallel_residual": False, "hidden_act": "gelu_fast",
        },
        "gptneox-yarn": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "rotary_pct": 0.75, "rotary_emb_base": 300, "hidden_act": "gelu_fast",
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        },
    },
    twins={NAME: gptneox},
    model_types={NAME: "gpt_neox"},
    errors=(
        (
            "gptneox", {"hidden_act": "relu"}, UnsupportedError,
            'hidden_act = "relu" is not supported, only "gelu" or "gelu_new" or',
        ),
        (
            "gptneox", {"num_attention_heads": 5}, CheckpointError,
            "num_attention_heads = 5.*a divisor of the hidden size 96",
        ),
        (
            "gptneox", {"rotary_pct": 0.1}, CheckpointError,
            "rotary_pct = 0.1.*a positive even number of values.*it gives 3",
        ),
        (
            "gptneox", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedError,
            "rope_type = .dynamic. is not supported",
        ),
    ),
    notes=(
        ("gptneox", {}, "computes GELU by its tanh formula"),
        ("gptneox-yarn", {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 9.0}}, "takes no beta_fast"),
        ("gptneox-serial", {"tie_word_embeddings": True}, "a matrix of its own"),
        ("gptneox-serial", {"attention_bias": False}, "there attention has biases"),
    ),
    converted={
        # without a model_type, by which transformers would rename rotary_pct, which its converter needs
        "gptneox": {},
        "gptneox-serial": {"rotary_pct": 0.25, "layer_norm_eps": 1e-5},
        "gptneox-yarn": {"layer_norm_eps": 1e-5},
    },
    sizes={"pythia-1.4b": 1.4148},
    loaded=("gptneox",),
)  # fmt: skip
