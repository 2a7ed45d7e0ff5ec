"""Intern-S2-Mobius. Its classes are not in transformers: the twin is Qwen3.5's, with each layer's bank of experts put
into the layer, as in SGLang's."""

from typing import Any

from family_rows import FamilyRows
from reference.qwen3_next import qwen3_next
from reference.recurrent import F64

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "InternS2MobiusForConditionalGeneration"


def mobius(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    n_bank = model.c.get("num_blocks", 4)
    for i in range(model.c["num_hidden_layers"]):
        bank = f"model.meta_mlp.{i % n_bank}."
        for name in [name for name in model.t if name.startswith(bank)]:
            model.t[f"model.layers.{i}.mlp.{name.removeprefix(bank)}"] = model.t[name]
    logits: F64 = qwen3_next(model, ids)
    return logits


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 5, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}  # fmt: skip
_ROPE: dict[str, Any] = {
    "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "interns2-mobius": {**_SIZES, "num_hidden_layers": 5, "num_blocks": 2, "rope_theta": 1e6},
        "interns2-mobius-banks": {**_SIZES, "num_hidden_layers": 3, "full_attention_interval": 3},
    },
    repeated=("interns2-mobius-banks",),
    twins={NAME: mobius},
    published={
        NAME: {
            "tie_word_embeddings": False, "image_token_id": 248056, "video_token_id": 248057,
            "vision_start_token_id": 248053, "vision_end_token_id": 248054, "vision_config": {"depth": 27},
            "text_config": {
                "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
                "num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu", "initializer_range": 0.02,
                "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "use_cache": True,
                "tie_word_embeddings": False,
                "rope_parameters": _ROPE,
                "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
                "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "decoder_sparse_step": 1,
                "mlp_only_layers": [], "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                "num_experts_per_tok": 8, "num_experts": 256, "norm_topk_prob": True, "output_router_logits": False,
                "router_aux_loss_coef": 0.001, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
                "num_blocks": 4,
            },
        },
    },
    examples={
        "interns2-mobius-pictures": {
            "architectures": [NAME], "vision_config": {"depth": 7},
            "text_config": {
                **_SIZES, "num_hidden_layers": 4, "vocab_size": 40, "max_position_embeddings": 64,
                "rope_parameters": _ROPE,
            },
        },
    },
    errors=(
        ("interns2-mobius", {"num_blocks": 0}, CheckpointError, "num_blocks = 0"),
        ("interns2-mobius", {"decoder_sparse_step": 2}, UnsupportedError, "decoder_sparse_step = 2"),
        ("interns2-mobius", {"mlp_only_layers": [1]}, UnsupportedError, r"mlp_only_layers = \[1\]"),
    ),
    refused=("interns2-mobius", "interns2-mobius-banks"),
    loaded=("interns2-mobius",),
)  # fmt: skip
