"""QRWKV6 and ARWKV-7, distilled from Qwen2."""

from family_rows import FamilyRows
from reference.rwkv import arwkv7, rwkv6_qwen2

ROWS = FamilyRows(
    configs={
        "arwkv7": {
            "architectures": ["RwkvHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "head_size": 32, "lora_rank_decay": 64, "lora_rank_iclr": 64, "wkv_version": 7,
            "wkv_has_gate": True, "wkv_has_group_norm": True, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "arwkv7-plain": {
            "architectures": ["RwkvHybridForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "head_size": 64, "lora_rank_decay": 64, "lora_rank_iclr": 64, "wkv_version": 7,
            "wkv_has_gate": False, "wkv_has_group_norm": False, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "rwkv6qwen2": {
            "architectures": ["RWKV6Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "lora_rank_tokenshift": 16,
            "lora_rank_decay": 40, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
        },
    },
    twins={
        "RwkvHybridForCausalLM": lambda model, ids: arwkv7(model.c, model.t, ids),
        "RWKV6Qwen2ForCausalLM": lambda model, ids: rwkv6_qwen2(model.c, model.t, ids),
    },
    published={
        "RWKV6Qwen2ForCausalLM": {
            "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
            "num_attention_heads": 40, "num_key_value_heads": 8, "lora_rank_tokenshift": 96, "lora_rank_decay": 128,
            "attention_bias": True, "attention_output_bias": False, "gate_rank_type": 1, "use_rope": False,
            "hidden_act": "silu", "max_position_embeddings": 32768, "max_window_layers": 64, "rms_norm_eps": 1e-5,
            "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "use_sliding_window": False,
            "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": False, "use_cache": True,
            "bos_token_id": 151643, "eos_token_id": 151645,
        },
        "RwkvHybridForCausalLM": {
            "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "head_size": 64, "head_size_divisor": 8,
            "wkv_version": 7, "wkv_layers": "full", "wkv_has_gate": True, "wkv_has_group_norm": True,
            "hidden_act": "silu", "max_position_embeddings": 32768, "max_window_layers": 28, "rms_norm_eps": 1e-6,
            "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "use_sliding_window": False,
            "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": False, "use_cache": True,
            "bos_token_id": 151643, "eos_token_id": 151645,
        },
    },
    different=("arwkv7",),
)  # fmt: skip
