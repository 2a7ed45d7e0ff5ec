"""GPT-NeoX."""

from family_rows import FamilyRows
from reference.ungated import gptneox

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
)  # fmt: skip
