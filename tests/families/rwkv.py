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
    published={
        "Rwkv6ForCausalLM": {
            "vocab_size": 65536, "hidden_size": 2048, "attention_hidden_size": 2048, "intermediate_size": None,
            "num_hidden_layers": 24, "head_size": 64, "head_size_divisor": 8, "layer_norm_epsilon": 1e-5,
            "rescale_every": 6, "num_attention_heads": 64, "tie_word_embeddings": False, "use_cache": True,
            "context_length": 4096, "model_version": "6_0", "bos_token_id": 0, "eos_token_id": 0,
        },
        "RWKV7ForCausalLM": {
            "vocab_size": 65536, "hidden_size": 2048, "hidden_ratio": 4.0, "intermediate_size": 8192,
            "num_hidden_layers": 24, "head_dim": 64, "num_heads": 32, "decay_low_rank_dim": 96,
            "gate_low_rank_dim": 256, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "hidden_act": "sqrelu",
            "max_position_embeddings": 2048, "norm_first": True, "norm_bias": True, "norm_eps": 1e-5, "attn": None,
            "attn_mode": "chunk", "use_cache": True, "fuse_norm": True, "fuse_cross_entropy": True,
            "fuse_linear_cross_entropy": False, "use_l2warp": True, "initializer_range": 0.02, "value_dim": [2048],
            "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
        },
        "Rwkv7ForCausalLM": {
            "vocab_size": 65536, "hidden_size": 2048, "attention_hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 24, "head_size": 64, "layer_norm_epsilon": 1e-5, "lora_rank_decay": 96,
            "lora_rank_iclr": 96, "lora_rank_value_residual_mix": 64, "lora_rank_gate": 256,
            "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0, "eos_token_id": 0,
        },
    },
    examples={
        "rwkv7-ratio": {
            "architectures": ["RWKV7ForCausalLM"], "hidden_size": 24, "hidden_ratio": 1.5, "num_hidden_layers": 2,
            "head_dim": 12, "decay_low_rank_dim": 3, "a_low_rank_dim": 5, "v_low_rank_dim": 7, "gate_low_rank_dim": 9,
            "norm_eps": 1e-5,
        },
        "rwkv7-world": {
            "architectures": ["Rwkv7ForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
            "head_size": 12, "lora_rank_decay": 3, "lora_rank_iclr": 5, "lora_rank_value_residual_mix": 7,
            "lora_rank_gate": 9, "layer_norm_epsilon": 1e-6,
        },
    },
    different=("rwkv7",),
    sizes={"rwkv7-0.4b": 0.4507, "rwkv7-1.5b": 1.527, "rwkv6-1.6b": 1.60},
    loaded=("rwkv6", "rwkv7"),
)  # fmt: skip
