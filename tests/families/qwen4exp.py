"""Qwen3.8-Flash-Next."""

from family_rows import FamilyRows
from reference.qwen4_exp import qwen4_exp

NAME = "Qwen4ExpForCausalLM"
ROWS = FamilyRows(
    configs={
        "qwen4exp": {
            "architectures": [NAME], "hidden_size": 72, "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "linear_num_key_heads": 2,
            "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
            "linear_conv_kernel_dim": 3, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40, "norm_topk_prob": False, "rms_norm_eps": 2e-4, "hc_count": 3,
            "hc_lowrank": 13, "indexer_n_heads": 11, "indexer_kv_heads": 1, "indexer_head_dim": 14, "indexer_budget": 9,
            "indexer_compress_ratio": 3, "ple_layer_ids": [3], "ple_embed_dim": 90, "ple_conv_kernel_size": 3,
            "ngram_size": 4, "heads_per_ngram": 2, "ngram_vocab_size_base": 37,
            "make_ngram_vocab_size_divisible_by": 11, "split_ngram_parts": 4, "seed": 99, "eos_token_id": [1763, 7],
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.6, "mrope_section": [3, 2, 1],
            },
        },
        "qwen4exp-plain": {
            "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 3,
            "num_key_value_heads": 1, "head_dim": 24, "attention_bias": True, "linear_num_key_heads": 4,
            "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4,
            "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
            "rms_norm_eps": 1e-5, "hc_count": 2, "hc_lowrank": 10, "indexer_n_heads": 13, "indexer_kv_heads": 1,
            "indexer_head_dim": 32, "indexer_budget": 10, "indexer_compress_ratio": 1, "output_gate_type": "sigmoid",
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
            "tie_word_embeddings": True,
        },
    },
    twins={NAME: qwen4_exp},
    noise={"qwen4-exp": 1.8e-5},
    model_types={NAME: "qwen4_exp_text"},
    examples={
        "qwen4exp-pictures": {
            "architectures": ["Qwen4ExpForConditionalGeneration"], "vision_config": {"depth": 7}, "image_token_id": 31,
            "text_config": {
                "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3,
                "num_key_value_heads": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3,
                "rms_norm_eps": 1e-6, "head_dim": 16, "num_experts": 3, "num_experts_per_tok": 2,
                "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14, "max_position_embeddings": 64,
                "hc_count": 2, "hc_lowrank": 5, "indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 10,
                "indexer_budget": 12, "indexer_compress_ratio": 4, "ple_layer_ids": [2], "ple_conv_kernel_size": 2,
                "heads_per_ngram": 3, "ngram_vocab_size_base": 11, "make_ngram_vocab_size_divisible_by": 7,
                "split_ngram_parts": 2, "eos_token_id": 3, "rope_parameters": {"partial_rotary_factor": 0.5},
            },
        },
    },
    notes=(
        ("qwen4exp", {}, "chooses other groups of tokens than transformers"),
        ("qwen4exp", {}, "llama.cpp takes output_gate_type = sigmoid"),
        ("qwen4exp", {}, "n-gram embeddings are as wide as the model, here they are not"),
        ("qwen4exp", {}, "the last of several eos_token_id as the end of n-grams"),
        ("qwen4exp", {}, "heads of keys and values have one size"),
        ("qwen4exp", {}, "llama.cpp takes norm_topk_prob = true"),
        ("qwen4exp", {"attention_bias": True}, "no bias in this architecture"),
        ("qwen4exp", {"heads_per_ngram": 30}, "at most 8 tokens and 64 rows of the table"),
    ),
    as_published={"qwen4-exp": {"model_type": "qwen4_exp_published"}},
    refused=("qwen4exp", "qwen4exp-plain"),
    sizes={"qwen3.8-flash-next-slice": 2.091},
    loaded=("qwen4exp",),
)  # fmt: skip
