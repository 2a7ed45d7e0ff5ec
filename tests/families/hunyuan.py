"""Hunyuan."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

_SWITCHES = Switches(normed="turned", norm_names=("query_layernorm", "key_layernorm"), shared="shared_mlp")
_TWIN = partial(plain, s=_SWITCHES)
ROWS = FamilyRows(
    configs={
        "hunyuan": {
            "architectures": ["HunYuanDenseV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0},
            "max_position_embeddings": 32768, "tie_word_embeddings": True,
        },
        "hunyuan-moe": {
            "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
            "rms_norm_eps": 1e-5, "rope_theta": 1e5, "num_experts": 7, "moe_topk": [3, 3], "num_shared_expert": [1, 1],
            "moe_intermediate_size": [64, 64], "tie_word_embeddings": True,
        },
        "hunyuan-moe-alpha": {
            "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40,
            "rms_norm_eps": 1e-6, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 30.0, "factor": 1.0},
            "num_experts": 5, "moe_topk": 2, "attention_bias": True, "tie_word_embeddings": False,
        },
    },
    repeated=("hunyuan-moe-alpha",),
    twins={"HunYuanDenseV1ForCausalLM": _TWIN, "HunYuanMoEV1ForCausalLM": _TWIN},
    model_types={"HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense", "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe"},
    errors=(
        ("hunyuan", {"rope_scaling": {"type": "dynamic", "factor": 1.0}}, CheckpointError, "has no alpha"),
        (
            "hunyuan", {"rope_scaling": {"type": "dynamic", "alpha": 5.0, "factor": 2.0}}, UnsupportedError,
            "factor = 2.0 is not supp",
        ),
        ("hunyuan", {"head_dim": 2}, CheckpointError, "head_dim = 2.*more than 2, with alpha"),
        ("hunyuan", {"use_cla": True}, UnsupportedError, "use_cla = true is not supported"),
        ("hunyuan-moe", {"moe_topk": [3, 2]}, CheckpointError, "moe_topk = .*2 times the same one"),
        ("hunyuan-moe", {"moe_topk": 8}, CheckpointError, "moe_topk = 8.*from 1 to 7"),
        ("hunyuan-moe", {"num_shared_expert": 2}, CheckpointError, "num_shared_expert = 2.*1, or 1 for every layer"),
        (
            "hunyuan-moe", {"moe_intermediate_size": [32, 32]}, CheckpointError,
            "moe_intermediate_size = .*64, or 64 for every layer",
        ),
    ),
    notes=(("hunyuan", {"attention_bias": True}, "no bias in this architecture"),),
    converted={"hunyuan": {"model_type": "hunyuan_v1_dense"}, "hunyuan-moe": {"model_type": "hunyuan_v1_moe"}},
    refused=("hunyuan-moe-alpha",),
    sizes={"hunyuan-1.8b": 1.791, "hunyuan-a13b": 80.39},
)  # fmt: skip
