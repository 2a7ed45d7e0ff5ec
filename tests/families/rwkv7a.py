"""RWKV-7a and RWKV-7b, for which no class is published."""

from typing import Any

from family_rows import FamilyRows
from reference.rwkv import rwkv7a

from hybrid.quant.ggml.errors import CheckpointError

A, B = "Rwkv7aForCausalLM", "Rwkv7bForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [A], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "head_size": 32,
    "lora_rank_decay": 32, "lora_rank_iclr": 40, "lora_rank_value_residual_mix": 24, "lora_rank_gate": 48,
    "deep_embed_size": 7,
}  # fmt: skip
_PUBLISHED: dict[str, Any] = {
    "vocab_size": 65536, "hidden_size": 768, "attention_hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "head_size": 64, "layer_norm_epsilon": 1e-5, "lora_rank_decay": 64, "lora_rank_iclr": 64,
    "lora_rank_value_residual_mix": 32, "lora_rank_gate": 128, "deep_embed_size": 32, "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={"rwkv7b": {**_SIZES, "architectures": [B], "dea_key_size": 24, "dea_rank": 5}, "rwkv7a": _SIZES},
    twins={A: rwkv7a, B: rwkv7a},
    published={A: _PUBLISHED, B: {**_PUBLISHED, "dea_key_size": 256, "dea_rank": 32}},
    errors=(("rwkv7b", {"dea_key_size": 36}, CheckpointError, "dea_key_size = 36 .*a divisor of the hidden size 96"),),
    notes=(("rwkv7a", {}, "no such architecture"),),
    refused=("rwkv7a", "rwkv7b"),
    sizes={"rwkv7a-0.1b": 1.0076},  # half of the 2.015 GB of rwkv7a-g1d-0.1b
    loaded=("rwkv7b",),
)  # fmt: skip
