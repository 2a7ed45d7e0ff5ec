"""Inkling and Inkling 2, without loops and with them."""

from typing import Any

from family_rows import FamilyRows
from reference.inkling import inkling, inkling2

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME, SECOND, LOOP = "InklingForCausalLM", "Inkling2ForCausalLM", "Inkling2LoopForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 3, "intermediate_size": 136,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "swa_num_attention_heads": 5,
    "swa_num_key_value_heads": 1, "swa_head_dim": 28, "sliding_window_size": 11, "d_rel": 7, "rel_extent": 23,
    "n_routed_experts": 9, "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 72,
}  # fmt: skip
_SECOND: dict[str, Any] = {
    "architectures": [SECOND], "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
    "swa_num_attention_heads": 5, "swa_num_key_value_heads": 1, "swa_head_dim": 28, "sliding_window_size": 11,
    "d_rel": 7, "rel_extent": 23, "n_routed_experts": 9, "num_experts_per_tok": 3, "moe_intermediate_size": 72,
    "unpadded_vocab_size": 2023, "qk_l2_clip_threshold": 4.6, "rel_l2_clip_threshold": 2.6,
}  # fmt: skip
_USUAL: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "route_scale": 8.0, "log_scaling_n_floor": 128000, "log_scaling_alpha": 0.1,
    "n_layers_per_attn_res_block": 6, "mlp_gate_softcap": 4.0, "mlp_up_softcap": 25.0, "final_logit_softcapping": 30.0,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "inkling": {
            **_SIZES, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"],
            "mlp_layer_types": ["sparse", "dense", "sparse"], "logits_mup_width_multiplier": 0.7,
            "log_scaling_n_floor": 9, "log_scaling_alpha": 0.7,
        },
        "inkling-taps": {
            **_SIZES, "conv_kernel_size": 3, "n_shared_experts": 1, "route_scale": 2.5, "rms_norm_eps": 2e-4,
            "logits_mup_width_multiplier": 1.5, "d_rel": 16, "local_layer_ids": [1], "dense_mlp_idx": 1,
        },
        "inkling2": {
            **_SECOND, "num_hidden_layers": 4, "n_layers_per_attn_res_block": 2, "log_scaling_n_floor": 9,
            "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"], "log_scaling_alpha": 0.7,
            "mlp_gate_softcap": 0.8, "mlp_up_softcap": 1.1, "final_logit_softcapping": 5.0,
        },
        "inkling2-first": {  # the first layer sees all tokens
            **_SECOND, "num_hidden_layers": 3, "n_layers_per_attn_res_block": 3, "conv_kernel_size": 3,
            "layer_types": ["hybrid", "hybrid", "hybrid_sliding"], "route_scale": 2.5, "rms_norm_eps": 2e-4,
            "log_scaling_n_floor": 21,
        },
        "inkling2-loop": {
            **_SECOND, "architectures": [LOOP], "hidden_size": 80, "num_hidden_layers": 8, "log_scaling_n_floor": 9,
            "layer_types": ["hybrid_sliding", "hybrid"] * 4, "n_layers_per_attn_res_block": 2,
            "loop_layer_index_start": 2, "loop_layer_index_end": 6, "loop_num_passes": 3, "loop_gate_rank": 9,
            "n_routed_experts": 5, "moe_intermediate_size": 40,
        },
        "inkling2-loop-last": {  # no layer after the loop; passes send nothing but the stream
            **_SECOND, "architectures": [LOOP], "num_hidden_layers": 2, "layer_types": ["hybrid_sliding", "hybrid"],
            "n_layers_per_attn_res_block": 1, "log_scaling_n_floor": 21,
            "loop_config": {"core_start": 1, "core_end": 2, "num_passes": 2, "gate_rank": 20},
        },
    },
    repeated=("inkling-taps", "inkling2-first", "inkling2-loop-last"),
    twins={NAME: inkling, SECOND: inkling2, LOOP: inkling2},
    defaults={
        NAME: {
            "rms_norm_eps": 1e-6, "route_scale": 8.0, "logits_mup_width_multiplier": 24.0, "log_scaling_alpha": 0.1,
        },
        **dict.fromkeys((SECOND, LOOP), _USUAL),
    },
    model_types={NAME: "inkling_text", SECOND: "inkling2_text", LOOP: "inkling2_loop_text"},
    errors=(
        ("inkling", {"shared_expert_sink": False}, UnsupportedError, "shared_expert_sink = false"),
        ("inkling", {"layer_types": ["hybrid"] * 2}, CheckpointError, "3 times hybrid or hybrid_sliding"),
        ("inkling", {"num_key_value_heads": 4}, CheckpointError, "a divisor of the 6 attention heads"),
        ("inkling2", {"scoring_func": "softmax"}, UnsupportedError, 'scoring_func = "softmax"'),
    ),
    refused=("inkling", "inkling-taps", "inkling2", "inkling2-first", "inkling2-loop", "inkling2-loop-last"),
    loaded=("inkling", "inkling2", "inkling2-loop"),
)  # fmt: skip
