"""PLaMo 2."""

from family_rows import Config, FamilyRows
from reference import plamo2_vocabulary
from reference.plamo2 import plamo2

NAME = "Plamo2ForCausalLM"
_PUBLISHED: Config = {
    "vocab_size": 100000, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 16, "num_key_value_heads": 1, "hidden_size_per_head": 128,
    "max_position_embeddings": 10485760, "attention_window_size": 2048, "full_attention_idx": [],
    "sliding_window": 2048, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_num_heads": 32, "mamba_step": 2,
    "mamba_chunk_size": 256, "mamba_enabled": True, "rms_norm_eps": 1e-6, "rope_theta": 10000, "linear_type": "normal",
    "fp8_accum_dtype": None, "eval_attention_n_bit": None, "eval_mlp_n_bit": None, "image_token_id": None,
    "image_feature_size": None, "image_proj_type": "linear", "use_cache": True, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "plamo2": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "num_attention_heads": 5, "num_key_value_heads": 1, "hidden_size_per_head": 24, "attention_window_size": 11,
            "full_attention_idx": [3], "mamba_d_state": 20, "mamba_d_conv": 3, "mamba_num_heads": 7, "mamba_step": 2,
            "rms_norm_eps": 3e-4, "tie_word_embeddings": True,
        },
        # as published, except sizes: llama.cpp computes the same in texts of up to the window's 512 tokens
        "plamo2-full": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_head": 32,
            "attention_window_size": 512, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_num_heads": 3, "mamba_step": 3,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False,
        },
    },
    twins={NAME: plamo2},
    published={NAME: _PUBLISHED, "PLaMo2ForCausalLM": _PUBLISHED},
    alike={"PLaMo2ForCausalLM": NAME},
    converted={"plamo2-full": {"vocab_size": len(plamo2_vocabulary.rows())}},
    different=("plamo2",),
    sizes={"plamo-2-1b": 1.29},
    loaded=("plamo2",),
)  # fmt: skip
