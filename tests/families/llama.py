"""Llama, Mistral, Mixtral and SmolVLM."""

from functools import partial

from family_rows import FamilyRows
from reference.llama import llama
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

ROWS = FamilyRows(
    configs={
        "llama-biased": {
            "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
        },
        "llama-yarn": {
            "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 500.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "mscale": 1.4,
                "mscale_all_dim": 0.6,
            },
            "tie_word_embeddings": False,
        },
        "mistral": {
            "architectures": ["MistralForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None, "tie_word_embeddings": False,
        },
        "mistral-window": {
            "architectures": ["MistralForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": 13, "tie_word_embeddings": False,
        },
        "mixtral": {
            "architectures": ["MixtralForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 1e5,
            "num_local_experts": 7, "num_experts_per_tok": 3, "sliding_window": None, "tie_word_embeddings": False,
        },
        "mixtral-window": {
            "architectures": ["MixtralForCausalLM"], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9, "tie_word_embeddings": True,
        },
    },
    repeated=("mixtral-window",),
    twins={
        "LlamaForCausalLM": llama, "MistralForCausalLM": llama,
        "MixtralForCausalLM": partial(plain, s=Switches(theta=1e6)),
    },
    noise={"llama": 8.8e-6, "llama-unigram-bin": 1.3e-5, "mistral-window": 1.7e-5},
    unchecked=("llama", "llama-unigram-bin", "mistral-window"),
    model_types={"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "MixtralForCausalLM": "mixtral"},
    alike={
        "Idefics3ForConditionalGeneration": "SmolVLMForConditionalGeneration", "LLaMAForCausalLM": "LlamaForCausalLM",
        "LlamaModel": "LlamaForCausalLM", "MistralModel": "MistralForCausalLM",
    },
    examples={
        "smolvlm": {
            "architectures": ["SmolVLMForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "scale_factor": 3,
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2,
                "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
            },
        },
    },
    errors=(("mixtral", {"num_experts_per_tok": 8}, CheckpointError, "num_experts_per_tok = 8.*from 1 to 7"),),
    converted={"llama-biased": {}, "mistral": {}, "mixtral": {"model_type": "mixtral"}},
    different=("mistral-window", "mixtral-window"),
    mlx={"llama": "llama-biased", "mistral": "mistral"},
    sizes={"mixtral-8x7b": 46.7},
)  # fmt: skip
