"""Hymba."""

from family_rows import Config, FamilyRows
from reference.hymba import hymba

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "HymbaForCausalLM"
_PUBLISHED: Config = {
    "vocab_size": 32001, "hidden_size": 1600, "intermediate_size": 5504, "num_hidden_layers": 32,
    "num_attention_heads": 25, "num_key_value_heads": 5, "hidden_act": "silu", "mlp_hidden_act": "silu",
    "max_position_embeddings": 8192, "orig_max_position_embeddings": 2048, "rope_theta": 10000.0, "rope_type": "ntk",
    "rope": True, "rms_norm_eps": 1e-6, "sliding_window": 1024, "global_attn_idx": [0, 15, 31],
    "kv_reuse_group": [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14], [16, 17, 18], [19, 20], [21, 22],
                       [23, 24], [25, 26], [27, 28], [29, 30]],
    "kv_reuse_every_i_layer": -1, "kv_weight_reuse": False, "num_memory_tokens": 128,
    "memory_tokens_interspersed_every": 0, "kq_norm": "none", "kq_head_dim": -1, "v_head_dim": 128,
    "attn_hidden_size": -1, "attn_implementation": "flex", "attn_implementation_new": "flex", "layer_type": ["h"] * 32,
    "conv_dim": {str(i): 3200 for i in range(32)}, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_dt_rank": 100, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_inner_layernorms": True,
    "num_mamba": 1, "num_experts": 1, "num_experts_per_tok": 1, "use_mamba_kernels": True,
    "calc_logits_for_entire_prompt": False, "output_router_logits": False, "router_aux_loss_coef": 0.001,
    "seq_length": 8192, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": False,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "hymba": {
            "architectures": [NAME], "hidden_size": 120, "intermediate_size": 104, "num_hidden_layers": 6,
            "num_attention_heads": 6, "num_key_value_heads": 2, "sliding_window": 11, "global_attn_idx": [0, 5],
            "kv_reuse_group": [[1, 2, 3]], "num_memory_tokens": 128, "mamba_d_state": 7, "mamba_d_conv": 3,
            "mamba_expand": 2, "mamba_dt_rank": 5, "rms_norm_eps": 3e-4, "orig_max_position_embeddings": 100,
        },
        # unpublished: values as wide as keys, plain RoPE, no window, no bias, pairs of layers, untied output
        "hymba-plain": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 72, "num_hidden_layers": 4,
            "num_attention_heads": 3, "num_key_value_heads": 3, "sliding_window": None, "num_memory_tokens": 64,
            "kv_reuse_group": None, "kv_reuse_every_i_layer": 2, "rope_type": "default", "mamba_expand": 1,
            "mamba_conv_bias": False, "tie_word_embeddings": False,
        },
    },
    twins={NAME: hymba},
    defaults={NAME: {"rms_norm_eps": 1e-6}},
    published={NAME: _PUBLISHED},
    errors=(
        ("hymba", {"num_memory_tokens": 100}, CheckpointError, "num_memory_tokens = 100.*a multiple of 64"),
        ("hymba", {"memory_tokens_interspersed_every": 8}, UnsupportedError, "interspersed_every = 8 is not supported"),
        ("hymba", {"kq_norm": "rms"}, UnsupportedError, 'kq_norm = "rms" is not supported'),
        ("hymba", {"rope": False}, UnsupportedError, "rope = false is not supported"),
        ("hymba", {"rope_type": "dynamic_ntk"}, UnsupportedError, "rope_type = 'dynamic_ntk' is not supported"),
        ("hymba", {"attn_implementation_new": "sdpa"}, UnsupportedError, '"sdpa" is not supported, only "flex" is'),
        ("hymba", {"mamba_proj_bias": True}, UnsupportedError, "mamba_proj_bias = true is not supported"),
        ("hymba", {"mlp_hidden_act": "relu2"}, UnsupportedError, 'mlp_hidden_act = "relu2" is not supported'),
        ("hymba", {"kq_head_dim": 10}, UnsupportedError, "kq_head_dim = 10 is not supported, only -1 or 20"),
        ("hymba", {"attn_hidden_size": 96}, UnsupportedError, "attn_hidden_size = 96 is not supported"),
        ("hymba", {"num_attention_heads": 8}, CheckpointError, "num_attention_heads = 8.*heads of even size"),
        ("hymba", {"kv_reuse_group": [[2, 1]]}, CheckpointError, "kv_reuse_group.*the layer that has keys first"),
        ("hymba", {"kv_reuse_group": [[1, 2], [1, 2]]}, CheckpointError, "kv_reuse_group.*and apart"),
        ("hymba", {"kv_reuse_group": [[0, 1]]}, CheckpointError, "layers 0 and 1 differ"),
        ("hymba", {"kv_reuse_group": [3]}, CheckpointError, "kv_reuse_group.*lists of layers"),
        ("hymba", {"global_attn_idx": "all"}, CheckpointError, "global_attn_idx.*numbers of layers"),
    ),
    notes=(("hymba", {}, "no such architecture"),),
    refused=("hymba", "hymba-plain"),
    sizes={"hymba-1.5b": 1.52},
    loaded=("hymba",),
)  # fmt: skip
