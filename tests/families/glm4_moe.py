"""GLM-4.5."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Glm4MoeForCausalLM"
ROWS = FamilyRows(
    configs={
        "glm4-moe": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 28, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
            "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_shared_experts": 1,
            "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "attention_bias": True, "use_qk_norm": True,
            "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
        },
        "glm4-moe-plain": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.75,
            "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
            "first_k_dense_replace": 0, "norm_topk_prob": False, "tie_word_embeddings": True,
        },
    },
    repeated=("glm4-moe-plain",),
    twins={NAME: partial(plain, s=Switches(normed="heads", part=0.5))},
    model_types={NAME: "glm4_moe"},
    errors=(("glm4-moe", {"num_experts_per_tok": 9}, CheckpointError, "num_experts_per_tok = 9.*from 1 to 7"),),
    converted={"glm4-moe": {"model_type": "glm4_moe"}, "glm4-moe-plain": {"model_type": "glm4_moe"}},
    sizes={"glm-4.5-air": 106.9},
)  # fmt: skip
