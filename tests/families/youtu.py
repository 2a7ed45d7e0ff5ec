"""Youtu-LLM."""

from typing import Any

from family_rows import FamilyRows
from reference.deepseek import deepseek

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "YoutuForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 5, "num_key_value_heads": 5, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12, "v_head_dim": 28, "rope_theta": 2e4,
    "pad_token_id": None,  # transformers makes the embedding of such a token 0 when it loads a tied model
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "youtu": {**_SIZES, "q_lora_rank": 40},
        "youtu-untied": {**_SIZES, "q_lora_rank": 33, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    },
    repeated=("youtu", "youtu-untied"),
    twins={NAME: deepseek},
    defaults={NAME: {"rms_norm_eps": 1e-6}},
    model_types={NAME: "youtu"},
    converted={"youtu": {"model_type": "youtu"}},
    different=("youtu-untied",),
    errors=(("youtu", {"rope_interleave": False}, UnsupportedError, "rope_interleave = false"),),
    notes=(("youtu", {"rms_norm_eps": 1e-5}, "llama.cpp normalizes latent vectors with an epsilon"),),
)  # fmt: skip
