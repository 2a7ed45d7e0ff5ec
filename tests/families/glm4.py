"""GLM-4."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Glm4ForCausalLM"
_SWITCHES = Switches(behind=("post_self_attn_layernorm", "post_mlp_layernorm"), neox=False, part=0.5)
ROWS = FamilyRows(
    configs={
        "glm4": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 28, "rms_norm_eps": 1e-5,
            "attention_bias": True, "tie_word_embeddings": False,
        },
    },
    twins={NAME: partial(plain, s=_SWITCHES)},
    model_types={NAME: "glm4"},
    errors=(("glm4", {"head_dim": 27}, CheckpointError, "head_dim = 27.*a positive even number"),),
    converted={"glm4": {"model_type": "glm4"}},
    mlx={"glm4": "glm4"},
    sizes={"glm-4-9b": 9.40},
)  # fmt: skip
