"""LongCat-Flash-Lite, which transformers lacks."""

from family_rows import FamilyRows

from hybrid.quant.ggml.errors import CheckpointError

from .longcat_flash import SIZES, longcat_flash

NAME = "LongcatFlashNgramForCausalLM"
ROWS = FamilyRows(
    configs={
        "longcat-flash-ngram": {
            **SIZES, "architectures": [NAME], "emb_neighbor_num": 4, "emb_split_num": 2, "ngram_vocab_size_ratio": 0.05,
            "eos_token_id": 1763, "rope_theta": 5e6,
        },
    },
    twins={NAME: longcat_flash},
    defaults={NAME: {"rms_norm_eps": 1e-5}},
    published={
        NAME: {
            "vocab_size": 131072, "hidden_size": 3072, "ffn_hidden_size": 6144, "expert_ffn_hidden_size": 1024,
            "num_layers": 14, "num_attention_heads": 32, "kv_lora_rank": 512, "q_lora_rank": 1536,
            "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "moe_topk": 12,
            "routed_scaling_factor": 6.0, "zero_expert_num": 128, "zero_expert_type": "identity",
            "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "ngram_vocab_size_ratio": 78, "emb_neighbor_num": 4,
            "emb_split_num": 4, "rope_theta": 5000000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 327680,
            "attention_bias": False, "attention_method": "MLA", "bos_token_id": 1, "eos_token_id": 2,
            "tie_word_embeddings": False, "use_cache": True,
        },
    },
    errors=(
        ("longcat-flash-ngram", {"emb_split_num": 33}, CheckpointError, "emb_split_num = 33 .*at most 32"),
        ("longcat-flash-ngram", {"eos_token_id": None}, CheckpointError, "eos_token_id = null .*one token"),
    ),
    refused=("longcat-flash-ngram",),
    loaded=("longcat-flash-ngram",),
)  # fmt: skip
