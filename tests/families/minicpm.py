"""MiniCPM and MiniCPM-SALA."""

from typing import Any

from family_rows import FamilyRows
from reference.minicpm import minicpm

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME, SALA = "MiniCPMForCausalLM", "MiniCPMSALAForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 40,
    "rms_norm_eps": 1e-5, "rope_theta": 2e4,
}  # fmt: skip
_LONG = {
    "rope_type": "longrope", "long_factor": [1.5 + i for i in range(8)], "short_factor": [1 + i / 8 for i in range(8)],
    "original_max_position_embeddings": 1024,
}  # fmt: skip
_SPARSE = {
    "block_size": 64, "dense_len": 8192, "init_blocks": 1, "kernel_size": 32, "kernel_stride": 16, "topk": 64,
    "use_nope": False, "window_size": 2048,
}  # fmt: skip
_SALA = {
    **_SIZES, "architectures": [SALA], "num_hidden_layers": 5, "max_position_embeddings": 9000,
    "mixer_types": ["minicpm4", "lightning-attn", "lightning-attn", "minicpm4", "lightning-attn"],
    "lightning_nkv": 6, "attn_use_rope": False, "attn_use_output_gate": True, "use_output_gate": True,
    "use_output_norm": True, "sparse_config": _SPARSE, "tie_word_embeddings": False,
}  # fmt: skip
# MiniCPM-2B's
_PUBLISHED = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "dim_model_base": 256, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 2304, "initializer_range": 0.1, "intermediate_size": 5760,
    "max_position_embeddings": 4096, "num_attention_heads": 36, "num_hidden_layers": 40, "num_key_value_heads": 36,
    "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 10000.0, "scale_depth": 1.4,
    "scale_emb": 12, "sparse_config": None, "tie_word_embeddings": True, "use_cache": True, "vocab_size": 122753,
}  # fmt: skip
_PUBLISHED_SALA = {
    **_PUBLISHED, "attn_use_output_gate": True, "attn_use_rope": False, "head_dim": 128, "hidden_size": 4096,
    "intermediate_size": 16384, "lightning_head_dim": 128, "lightning_nh": 32, "lightning_nkv": 32,
    "lightning_scale": "1/sqrt(d)", "lightning_use_rope": True, "max_position_embeddings": 524288,
    "mixer_types": ["minicpm4", "lightning-attn"], "mup_denominator": 32, "num_attention_heads": 32,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "pad_token_id": 2, "qk_norm": True, "rms_norm_eps": 1e-6,
    "shift_labels": True, "sparse_config": _SPARSE, "tie_word_embeddings": False, "use_output_gate": True,
    "use_output_norm": True, "vocab_size": 73448,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "minicpm": _SIZES,
        "minicpm-long": {**_SIZES, "head_dim": 16, "max_position_embeddings": 2048, "rope_scaling": _LONG},
        "minicpm-sala": _SALA,
        "minicpm-sala-plain": {
            **_SALA, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 20, "lightning_nkv": 5,
            "num_hidden_layers": 3, "mixer_types": ["lightning", "minicpm4", "lightning_attn"], "qk_norm": False,
            "attn_use_rope": True, "lightning_use_rope": False, "attn_use_output_gate": False,
            "use_output_gate": False, "use_output_norm": False, "lightning_scale": "1/d", "sparse_config": None,
            "tie_word_embeddings": True,
        },
    },
    repeated=("minicpm-long",),
    twins=dict.fromkeys((NAME, SALA), minicpm),
    published={NAME: _PUBLISHED, SALA: _PUBLISHED_SALA},
    errors=(
        ("minicpm", {"num_experts": 8}, UnsupportedError, "num_experts = 8"),
        ("minicpm-sala", {"lightning_nkv": 3}, CheckpointError, "lightning_nkv = 3"),
        ("minicpm-sala", {"lightning_scale": 0.5}, UnsupportedError, "lightning_scale = 0.5"),
        ("minicpm-sala", {"lightning_layerwise_decay": True}, UnsupportedError, "lightning_layerwise_decay = true"),
    ),
    notes=(
        ("minicpm", {"sparse_config": _SPARSE, "max_position_embeddings": 32768}, "contexts end at 8191"),
        ("minicpm-sala", {}, "it has no such architecture"),
    ),
    converted={"minicpm": {"vocab_size": 2000}},
    refused=("minicpm-sala", "minicpm-sala-plain"),
    loaded=("minicpm-sala",),
)  # fmt: skip
