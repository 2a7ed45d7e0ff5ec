"""RWKV-6 and RWKV-7."""

from family_rows import FamilyRows
from reference.rwkv import rwkv6, rwkv7

ROWS = FamilyRows(
    configs={
        "rwkv6": {
            "architectures": ["Rwkv6ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "head_size": 32, "rescale_every": 2, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
        },
        "rwkv7": {
            "architectures": ["RWKV7ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "head_dim": 32, "decay_low_rank_dim": 32, "a_low_rank_dim": 40, "v_low_rank_dim": 24,
            "gate_low_rank_dim": 48, "norm_eps": 1e-5, "hidden_act": "sqrelu", "tie_word_embeddings": False,
        },
    },
    twins={
        "Rwkv6ForCausalLM": lambda model, ids: rwkv6(model.c, model.t, ids),
        "RWKV7ForCausalLM": lambda model, ids: rwkv7(model.c, model.t, ids),
    },
)  # fmt: skip
