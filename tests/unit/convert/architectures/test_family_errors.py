"""What newer families refuse, by file and key, and their notes about llama.cpp."""

from typing import Any

import pytest
import random_checkpoints
import random_heads
from families import listed
from random_checkpoints import CONFIGS

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.types import FileType

C, U = CheckpointError, UnsupportedError
FULL = {"full_attention": {"rope_type": "default"}}


def _lists(attention: list[int], **more: Any) -> dict[str, Any]:
    """Layer lists of Kimi Linear, as published."""
    return {"layer_types": None, "linear_attn_config": {"full_attn_layers": attention, **more}}


def _k3(**more: Any) -> dict[str, Any]:
    """Settings of Kimi K3's delta rule."""
    return {"linear_attn_config": {**CONFIGS["kimi-k3"]["linear_attn_config"], "kda_layers": None, **more}}


def family(name: str, change: dict[str, Any]) -> Any:
    return random_checkpoints.family_for({"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change})


HUGE = 10**9


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("qwen3next", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix of 2000000000 rows"),
        ("qwen35", "linear_value_head_dim", "linear_value_head_dim = 1000000000 make a matrix of 6000000000 rows"),
        ("qwen4exp", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix"),
        ("olmo-hybrid", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix"),
        ("falcon-h1", "mamba_d_state", "mamba_d_state = 1000000000 .* make a matrix of"),
        (
            "apertus",
            "hidden_size",
            "num_attention_heads = 6 .*expected at least 15259, for heads of up to 65536 values",
        ),
    ],
)
def test_sizes_are_compared_before_names_and_arrays_are_made_of_them(name: str, key: str, message: str) -> None:
    """Such sizes once took gigabytes before the first shape was compared."""
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name]}
    shapes = {tensor: values.shape for tensor, values in random_checkpoints.tensors(config).items()}
    random_checkpoints.family_for(config, shapes)
    with pytest.raises(C, match=message):
        random_checkpoints.family_for({**config, key: HUGE // 6 * 6 if key == "hidden_size" else HUGE}, shapes)


@pytest.mark.parametrize(
    ("name", "change", "kind", "message"),
    [
        ("olmo3", {"rope_parameters": {"rope_type": "yarn"}}, C, "rope_parameters = .*an object full_attention"),
        ("olmo3", {"rope_parameters": {**FULL, "sliding_attention": {"rope_type": "yarn"}}}, U, "rope_type = .yarn"),
        ("olmo3", {"sliding_window": None}, C, "layer_types.*no sliding_attention"),
        ("olmo3", {"layer_types": ["sliding_attention"]}, C, "layer_types = .*5 times sliding_attention or full"),
        ("qwen2moe", {"shared_expert_intermediate_size": 0}, C, "shared_expert_intermediate_size = 0.*from 1"),
        ("qwen2moe-window", {"sliding_window": 0}, C, "sliding_window = 0.*from 1"),
        ("glm4", {"head_dim": 27}, C, "head_dim = 27.*a positive even number"),
        ("exaone4-window", {"sliding_window_pattern": "LLX"}, C, "sliding_window_pattern = .LLX.*an integer"),
        ("arcee", {"hidden_act": "silu"}, U, "only .relu2. is"),
        ("command-r", {"use_qk_norm": True}, U, "use_qk_norm = true is not supported"),
        ("command-r", {"tie_word_embeddings": False}, U, "tie_word_embeddings = false is not supported"),
        ("nemotron", {"partial_rotary_factor": 0.01}, C, "a positive even number"),
        ("mixtral", {"num_experts_per_tok": 8}, C, "num_experts_per_tok = 8.*from 1 to 7"),
        ("gemma", {"attention_bias": True}, U, "attention_bias = true is not supported"),
        ("gemma", {"hidden_act": "silu"}, U, "hidden_act = .silu. is not supported"),
        ("phimoe", {"num_experts_per_tok": 3}, U, "num_experts_per_tok = 3 is not supported, only 2 is"),
        ("phimoe", {"router_jitter_noise": -0.1}, C, "router_jitter_noise = -0.1.*not negative"),
        ("phimoe", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, U, "rope_type = 'yarn' is not supported, only"),
        ("phimoe", {"rope_scaling": {"type": "longrope"}}, C, "has no short_mscale"),
        (
            "phimoe",
            {"rope_scaling": {"type": "longrope", "short_mscale": 1.2, "long_mscale": 1.3}},
            U,
            "short_mscale = 1.2 and long_mscale = 1.3 are not supported, only the same",
        ),
        ("apertus", {"hidden_act": "silu"}, U, "hidden_act = .silu. is not supported, only .xielu. is"),
        ("exaone4", {"layer_types": ["sliding_attention"] * 2}, C, "layer_types = .*no sliding_attention"),
        ("ernie4_5-moe", {"moe_norm_min": 0.5}, U, "moe_norm_min = 0.5 is not supported"),
        ("ernie4_5-moe", {"use_bias": True}, U, "use_bias = true is not supported"),
        ("ernie4_5-moe", {"moe_k": 9}, C, "moe_k = 9.*from 1 to 7"),
        ("hunyuan", {"rope_scaling": {"type": "dynamic", "factor": 1.0}}, C, "has no alpha"),
        ("hunyuan", {"rope_scaling": {"type": "dynamic", "alpha": 5.0, "factor": 2.0}}, U, "factor = 2.0 is not supp"),
        ("hunyuan", {"head_dim": 2}, C, "head_dim = 2.*more than 2, with alpha"),
        ("hunyuan", {"use_cla": True}, U, "use_cla = true is not supported"),
        ("hunyuan-moe", {"moe_topk": [3, 2]}, C, "moe_topk = .*2 times the same one"),
        ("hunyuan-moe", {"moe_topk": 8}, C, "moe_topk = 8.*from 1 to 7"),
        ("hunyuan-moe", {"num_shared_expert": 2}, C, "num_shared_expert = 2.*1, or 1 for every layer"),
        ("hunyuan-moe", {"moe_intermediate_size": [32, 32]}, C, "moe_intermediate_size = .*64, or 64 for every layer"),
        ("cohere2", {"attention_bias": True}, U, "attention_bias = true is not supported"),
        ("cohere2", {"use_qk_norm": True}, U, "use_qk_norm = true is not supported"),
        ("cohere2", {"use_parallel_block": False}, U, "use_parallel_block = false is not supported"),
        ("cohere2", {"head_dim": 24}, U, "head_dim = 24 is not supported, only 16 is"),
        ("cohere2", {"sliding_window": None}, C, "layer_types.*no sliding_attention"),
        ("cohere2", {"sliding_window_pattern": 0}, C, "sliding_window_pattern = 0.*from 1"),
        ("stablelm", {"qk_layernorm": True}, U, "qk_layernorm = true is not supported"),
        ("stablelm", {"use_parallel_residual": True}, U, "use_parallel_residual = true is not supported"),
        ("stablelm", {"partial_rotary_factor": 0.1}, C, "hidden_size.*a positive even number"),
        ("dots1", {"scoring_func": "softmax"}, U, "scoring_func = .softmax. is not supported"),
        ("dots1-groups", {"n_group": 5}, C, "n_group = 5.*groups of two or more of the 12 experts"),
        ("dots1", {"n_shared_experts": None}, C, "n_shared_experts"),
        ("glm4-moe", {"num_experts_per_tok": 9}, C, "num_experts_per_tok = 9.*from 1 to 7"),
        ("falcon-h1", {"ssm_multipliers": [1.0]}, C, "ssm_multipliers = .*5 numbers"),
        ("falcon-h1", {"mlp_multipliers": [1.0, "a"]}, C, 'mlp_multipliers = "a".*a finite number'),
        ("falcon-h1", {"attention_bias": 1}, C, "attention_bias = 1.*true or false"),
        ("falcon-h1", {"hidden_act": "gelu"}, U, 'hidden_act = "gelu" is not supported, only "silu" or "swish" is'),
        ("falcon-h1", {"head_dim": 23}, C, "head_dim = 23.*even size"),
        ("nemotron-h", {"hybrid_override_pattern": "M-X"}, C, "hybrid_override_pattern = .*mamba or attention"),
        ("nemotron-h", {"hybrid_override_pattern": ""}, C, "hybrid_override_pattern"),
        ("nemotron-h", {"mlp_hidden_act": "silu"}, U, "mlp_hidden_act"),
        ("nemotron-h-moe", {"n_group": 2}, C, "n_group = 2.*groups of two or more of the 5 experts"),
        ("nemotron-h-moe", {"n_group": 5, "n_routed_experts": 5}, C, "n_group = 5.*groups of two or more"),
        ("nemotron-h-moe-groups", {"n_group": 13}, C, "n_group = 13.*from 1 to 12"),
        ("nemotron-h-moe-groups", {"topk_group": 5}, C, "topk_group = 5.*from 1 to 4"),
        ("nemotron-h-moe-groups", {"topk_group": 1}, C, "topk_group = 1.*groups that have the 5 experts of a token"),
        ("lfm2", {"layer_types": None, "full_attn_idxs": [9]}, C, "full_attn_idxs = .9.*numbers of the 4 layers"),
        ("lfm2", {"layer_types": ["conv"] * 3}, C, "layer_types = .*4 times conv or full_attention"),
        (
            "lfm3",
            {"layer_types": ["conv"] * 3},
            C,
            "layer_types = .*4 times conv or sliding_attention or full_attention",
        ),
        ("lfm3", {"sliding_window": None}, C, "sliding_window = null .*for the layers of sliding_attention"),
        ("lfm3", {"head_dim": 23}, C, "head_dim = 23.*even size"),
        ("lfm3", {"num_key_value_heads": 2}, C, "num_key_value_heads = 2.*a divisor of the 5 attention heads"),
        ("lfm3", {"rope_parameters": {"rope_theta": 1e4}}, C, "full_attention.*the settings of RoPE of these layers"),
        (
            "lfm3-biased",
            {"rope_parameters": {"full_attention": {"rope_type": "llama3"}, "sliding_attention": {}}},
            U,
            "rope_type = 'llama3' is not supported, only default, linear and yarn are",
        ),
        ("lfm3", {"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "yarn"}}}, U, "yarn"),
        (
            "lfm3",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
                    "sliding_attention": {},
                }
            },
            C,
            "partial_rotary_factor = 0.5.*1, with rope_type = linear",
        ),
        (
            "lfm3-biased",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1.5},
                    "sliding_attention": {"rope_theta": 1e4},
                }
            },
            C,
            "rotary_factor = 1.5.*at most 1",
        ),
        ("lfm2moe", {"num_experts_per_tok": 9}, C, "num_experts_per_tok = 9.*from 1 to 5"),
        ("qwen2", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, U, "rope_type = 'dynamic' is not supp"),
        ("qwen2-yarn", {"rope_theta": 1.0}, C, "rope_theta = 1, expected more than 1, with YaRN"),
        (
            "qwen2",
            {"rope_scaling": {"type": "llama3", "low_freq_factor": 5}},
            C,
            "high_freq_factor = 4, expected no less",
        ),
        ("gemma3n", {"altup_num_inputs": 1}, C, "altup_num_inputs = 1.*from 2"),
        ("gemma3n", {"altup_active_idx": 4}, C, "altup_active_idx = 4.*from 0 to 3"),
        ("gemma3n", {"activation_sparsity_pattern": [0.5] * 6}, C, "activation_sparsity_pattern = .*7 shares from 0"),
        ("gemma3n", {"activation_sparsity_pattern": 0.5}, C, "activation_sparsity_pattern = 0.5"),
        ("gemma3n", {"activation_sparsity_pattern": [1.0] * 7}, C, "activation_sparsity_pattern"),
        ("gemma3n", {"intermediate_size": [64] * 5}, C, "intermediate_size = .*7 widths"),
        ("gemma3n", {"num_kv_shared_layers": 6}, C, "num_kv_shared_layers = 6.*a layer of each kind"),
        ("gemma3n", {"sliding_window": None}, C, "sliding_window"),
        ("gemma3n", {"num_key_value_heads": 4}, C, "num_key_value_heads = 4.*a divisor of the 6"),
        ("gemma3n", {"hidden_activation": "silu"}, U, "hidden_activation"),
        ("llama4-window", {"moe_layers": [1, "2"]}, C, "moe_layers = .*numbers of layers"),
        ("llama4-window", {"interleave_moe_layer_step": 0}, C, "interleave_moe_layer_step = 0.*from 1"),
        ("llama4-window", {"attn_scale": -1.0}, C, "attn_scale = -1.*at least 0"),
        ("llama4-window", {"attention_chunk_size": None}, C, "attention_chunk_size = null.*a number of tokens"),
        ("llama4-window", {"num_experts_per_tok": 6}, C, "num_experts_per_tok = 6.*from 1 to 5"),
        ("llama4-window", {"no_rope_layers": [1]}, C, "no_rope_layers = .*5 times 1 for a layer with RoPE"),
        (
            "llama4-window",
            {"layer_types": ["sliding_attention"] * 5},
            C,
            "layer_types = .*5 times chunked_attention or full",
        ),
        ("llama4-window", {"hidden_act": "gelu"}, U, "hidden_act"),
        ("qwen2", {"layer_types": ["sliding_attention"] * 2}, C, "layer_types = .*no sliding_attention"),
        ("qwen2-window", {"sliding_window": 0}, C, "sliding_window = 0.*from 1"),
        ("qwen2-window", {"layer_types": ["sliding"] * 3}, C, "layer_types = .*3 times sliding_attention or full_att"),
        ("phi3-longrope", {"rope_scaling": {"type": "longrope"}}, C, "has no short_factor"),
        ("phi3-longrope", {"hidden_size": 128}, C, "short_factor = .*12 positive numbers"),
        ("phi3-longrope", {"original_max_position_embeddings": 1}, C, "original_max_position_embeddings = 1"),
        ("gemma2", {"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, U, "only default, linear and yarn are"),
        ("gpt-oss-rounded", {"sliding_window": None}, C, "sliding_window = null.*for the layers of sliding_att"),
        (
            "gpt-oss-rounded",
            {"layer_types": ["full_attention"]},
            C,
            "layer_types = .*3 times sliding_attention or full",
        ),
        ("gpt-oss-rounded", {"swiglu_limit": 0}, C, "swiglu_limit = 0.*a positive number"),
        ("gpt-oss-rounded", {"num_experts_per_tok": 8}, C, "num_experts_per_tok = 8.*from 1 to 7"),
        ("ministral3", {"rope_parameters": {"llama_4_scaling_beta": -1.0}}, C, "llama_4_scaling_beta = -1.*at least 0"),
        ("gemma3", {"sliding_window_pattern": 0}, C, "sliding_window_pattern = 0"),
        ("gemma3", {"sliding_window": None}, C, "sliding_window = null .*for the layers of sliding_attention"),
        ("gemma3-order", {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}}, U, "rope_type"),
        ("recurrentgemma", {"lru_width": 70}, C, "lru_width = 70.*a multiple of the 3 heads"),
        ("recurrentgemma", {"block_types": ["mamba"]}, C, "block_types = .*recurrent and attention"),
        ("recurrentgemma", {"intermediate_size": 321}, C, "intermediate_size = 321.*an even number"),
        ("jamba-biased", {"head_dim": 24}, U, "head_dim = 24 is not supported, only 12 is"),
        ("bamba-biased", {"head_dim": 24}, U, "head_dim = 24 is not supported, only 16 is"),
        ("granite-hybrid-biased", {"head_dim": 24}, U, "head_dim = 24 is not supported, only 16 is"),
        ("mamba-biased", {"conv_kernel": 1}, C, "conv_kernel = 1.*from 2 to"),
        ("mamba-biased", {"use_bias": "yes"}, C, 'use_bias = "yes".*true or false'),
        ("zamba", {"n_mamba_heads": 5}, C, "n_mamba_heads = 5.*a divisor of the 96 channels"),
        ("zamba", {"layers_block_type": ["mamba"] * 5}, C, "layers_block_type.*at least one layer of kind hybrid"),
        ("zamba", {"hidden_act": "silu"}, U, "hidden_act"),
        ("gptneox", {"hidden_act": "relu"}, U, 'hidden_act = "relu" is not supported, only "gelu" or "gelu_new" or'),
        ("gptneox", {"num_attention_heads": 5}, C, "num_attention_heads = 5.*a divisor of the hidden size 96"),
        ("gptneox", {"rotary_pct": 0.1}, C, "rotary_pct = 0.1.*a positive even number of values.*it gives 3"),
        ("gptneox", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, U, "rope_type = .dynamic. is not supported"),
        ("falcon", {"rope_scaling": {"rope_type": "llama3"}}, U, "only default, linear and yarn are"),
        ("falcon", {"alibi": True}, U, "alibi = true is not supported, only false is"),
        ("falcon", {"parallel_attn": False}, U, "parallel_attn = false is not supported, only true is"),
        ("falcon", {"bias": True}, U, "bias = true is not supported, only false is"),
        ("falcon", {"num_attention_heads": 7}, C, "num_attention_heads = 7.*a divisor of the hidden size 96"),
        ("falcon", {"multi_query": False, "num_kv_heads": 3}, C, "num_kv_heads = 3.*expected 6"),
        ("falcon-normed", {"num_kv_heads": 3}, C, "num_kv_heads = 3.*a divisor of the 4 attention heads"),
        ("falcon", {"num_attention_heads": 32}, C, "num_attention_heads = 32.*heads of even size"),
        ("phi4flash", {"num_hidden_layers": 6}, C, "num_hidden_layers = 6.*a multiple of 4"),
        ("phi4flash", {"mb_per_layer": 4}, U, "mb_per_layer = 4 is not supported, only 2 is"),
        ("phi4flash", {"num_attention_heads": 3, "num_key_value_heads": 3}, C, "num_attention_heads = 3.*even"),
        ("phi4flash", {"num_key_value_heads": 3}, C, "num_key_value_heads = 3.*even"),
        ("phi4flash", {"mlp_bias": True}, U, "mlp_bias = true is not supported"),
        ("phi4flash", {"lm_head_bias": True}, U, "lm_head_bias = true is not supported"),
        ("phi4flash", {"layer_types": ["full_attention"] * 8}, C, "layer_types.*windows on the attention of the first"),
        ("zaya", {"num_experts_per_tok": 2}, U, "num_experts_per_tok = 2 is not supported, only 1 is"),
        ("zaya", {"hidden_act": "gelu"}, U, 'hidden_act = "gelu" is not supported, only "silu" is'),
        ("zaya", {"num_key_value_heads": 4}, C, "num_key_value_heads = 4.*a divisor of the 6 attention heads"),
        ("zaya", {"num_key_value_heads": 3, "head_dim": 21}, C, "head_dim = 21.*an even number of values"),
        ("zaya", {"cca_time0": 1, "cca_time1": 1}, C, "cca_time1 = 1.*2 or more, where cca_time0 is 1"),
        ("zaya", {"layer_types": ["hybrid"]}, C, "layer_types = .*3 times hybrid or hybrid_sliding"),
        ("zaya", {"rope_parameters": {"hybrid": {}}}, C, "has no rope_theta"),
        ("zaya", {"rope_parameters": {}}, C, "has no rope_theta"),
        (
            "zaya",
            {"rope_parameters": {"hybrid": {"rope_theta": 9.0, "rope_type": "dynamic", "factor": 2.0}}},
            U,
            "rope_type = 'dynamic' is not supported, only default, linear and yarn are",
        ),
        (
            "zaya-window",
            {
                "rope_parameters": {
                    "hybrid": {"rope_theta": 9.0},
                    "hybrid_sliding": {"rope_theta": 9.0, "rope_type": "linear", "factor": 2.0},
                }
            },
            U,
            'rope_type = "linear" is not supported, only "default" is',
        ),
        (
            "zaya",
            {"rope_parameters": {"hybrid": {"rope_theta": 9.0, "partial_rotary_factor": 0.15}}},
            C,
            "rope_parameters = .*a positive even number of values to turn in heads of 20; hybrid has 3",
        ),
        ("zaya-window", {"sliding_window": None}, C, "sliding_window = null.*for the layers of hybrid_sliding"),
        ("zamba2", {"use_long_context": True}, U, "use_long_context = true"),
        ("zamba2", {"hybrid_layer_ids": [1, 2]}, U, "hybrid_layer_ids = .1, 2. is not supported, only .1, 2, 4. is"),
        ("zamba2", {"num_key_value_heads": 3}, C, "num_key_value_heads = 3.*6, as adapters need"),
        ("zamba2", {"mamba_ngroups": 5}, C, "mamba_ngroups = 5.*a divisor of the 12 heads"),
        ("olmo-hybrid", {"linear_num_value_heads": 4}, C, "linear_num_value_heads = 4.*a multiple of .* = 3"),
        ("olmo-hybrid", {"layer_types": ["mamba"] * 4}, C, "layer_types = .*4 times linear_attention or full_"),
        ("xlstm", {"weight_mode": "fused"}, U, "weight_mode = .*only .single. is"),
        ("xlstm", {"use_bias": True}, U, "use_bias"),
        ("xlstm", {"num_heads": 5}, C, "num_heads = 5.*heads that 48 keys and 96 values can be shared out to"),
        ("kimi-linear", {"num_key_value_heads": 1}, C, "num_key_value_heads = 1.*expected 3, as many as heads of quer"),
        ("kimi-linear", {"layer_types": ["mamba"] * 4}, C, "layer_types = .*4 times linear_attention or full_a"),
        ("kimi-linear", {"layer_types": None}, C, "has no full_attn_layers, expected numbers of layers from 1 to 4"),
        ("kimi-linear", _lists([0, 2]), C, "full_attn_layers = .0, 2.*numbers of layers from 1 to 4"),
        ("kimi-linear", _lists([2], short_conv_kernel_size=1), C, "short_conv_kernel_size = 1.*from 2 to"),
        ("kimi-linear", {"mlp_layer_types": [*["sparse"] * 3, "dense"]}, C, "mlp_layer_types = .*without experts"),
        ("kimi-linear", {"num_expert_group": 3}, C, "num_expert_group = 3.*groups of two or more of the 8 experts"),
        ("kimi-linear", {"num_expert_group": None, "n_group": 3}, C, " n_group = 3.*groups of two or more"),
        ("kimi-linear", {"num_experts_per_token": 5}, C, "topk_group = 2.*groups that have the 5 experts"),
        ("kimi-linear", {"moe_layer_freq": 2}, U, "moe_layer_freq = 2"),
        ("kimi-linear", {"moe_router_activation_func": "softmax"}, U, "moe_router_activation_func = .softmax."),
        ("kimi-linear", {"attention_bias": True}, U, "attention_bias = true"),
        ("kimi-k3", {"hidden_act": "silu"}, U, 'hidden_act = "silu" is not supported, only "situ" is'),
        ("kimi-k3", {"mla_use_nope": False}, U, "mla_use_nope = false is not supported, only true is"),
        ("kimi-k3", {"mla_use_nope": None}, C, "mla_use_nope = null .*expected true, as use_full_rank_gate"),
        ("kimi-k3", {"attn_res_block_size": None}, C, "has no attn_res_block_size"),
        ("kimi-k3", {"attn_res_block_size": 0}, C, "attn_res_block_size = 0.*from 1"),
        ("kimi-k3", {"activation_situ_beta": 0}, C, "activation_situ_beta = 0.*a positive number"),
        ("kimi-k3", _k3(use_full_rank_gate=False), U, "use_full_rank_gate = false is not supported"),
        ("kimi-k3", _k3(gate_lower_bound=1.0), C, "gate_lower_bound = 1.0.*a negative number"),
        ("kimi-k3", _k3(full_attn_layers=[6]), C, "full_attn_layers = .6.*numbers of layers from 1 to 5"),
        ("bailing-hybrid", {"num_key_value_heads": 1}, C, "num_key_value_heads = 1.*expected 5"),
        ("bailing-hybrid", {"kda_safe_gate": False}, U, "kda_safe_gate = false"),
        ("bailing-hybrid", {"kda_lower_bound": 1.0}, C, "kda_lower_bound = 1.*a negative number"),
        ("bailing-hybrid", {"no_kda_lora": False}, U, "no_kda_lora = false"),
        ("bailing-hybrid", {"q_lora_rank": 20}, U, "q_lora_rank = 20"),
        ("bailing-hybrid", {"score_function": "softmax"}, U, "score_function = .softmax."),
        ("bailing-hybrid", {"expert_swiglu_limit_list": [7.0]}, U, "expert_swiglu_limit_list = .7"),
        ("bailing-hybrid", {"num_expert_group": None}, C, "has no num_expert_group or n_group"),
        ("bailing-hybrid", {"topk_group": None}, C, "has no topk_group"),
        ("bailing-hybrid", {"moe_shared_expert_intermediate_size": 64}, C, "= 64.*expected 128, of 2 experts"),
        ("bailing-hybrid", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, U, "type = .yarn. is not supported"),
        ("deepseek-v2", {"num_key_value_heads": 1}, C, "num_key_value_heads = 1.*expected 3"),
        ("deepseek-v2", {"qk_rope_head_dim": 11}, C, "qk_rope_head_dim = 11.*an even number"),
        ("deepseek-v2", {"norm_topk_prob": True}, U, "norm_topk_prob = true"),
        ("deepseek-v2", {"topk_method": "noaux_tc"}, U, "topk_method = .noaux_tc."),
        ("deepseek-v2", {"scoring_func": "sigmoid"}, U, "scoring_func = .sigmoid."),
        (
            "deepseek-v2",
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0}},
            U,
            "mscale = 1 and msc.* = 0",
        ),
        ("deepseek-v2", {"rope_scaling": {"type": "linear", "factor": 4.0}}, U, "rope_type = 'linear' is not supp"),
        ("deepseek-v2-groups", {"n_group": 5}, C, "n_group = 5.*groups of two or more"),
        ("deepseek-v3", {"n_group": None}, C, "has no n_group"),
        ("deepseek-v3", {"rope_interleave": False}, U, "rope_interleave = false"),
        ("deepseek-v3", {"scoring_func": "softmax"}, U, "scoring_func = .softmax."),
        ("granitemoe", {"num_experts_per_tok": 6}, C, "num_experts_per_tok = 6.*1 to 5"),
        ("glm5-next-plain", {"num_key_value_heads": 1}, C, "num_key_value_heads = 1.*expected 2"),
        ("glm5-next-plain", {"qk_rope_head_dim": 8}, U, "qk_rope_head_dim = 8 is not supported, only 0 is"),
        ("glm5-next-plain", {"q_lora_rank": None}, C, "has no q_lora_rank"),
        ("glm5-next-plain", {"index_topk": 12}, C, "index_topk = 12.*a multiple of index_kpool = 5"),
        ("glm5-next-plain", {"index_kpool_always_select_tail": False}, U, "index_kpool_always_select_tail = false"),
        ("glm5-next-plain", {"layer_types": ["mamba"] * 4}, C, "layer_types = .*4 times linear_attention or indexed_"),
        ("glm5-next-plain", {"indexer_types": ["full"] * 3}, C, "indexer_types = .*4 times full or shared"),
        ("glm5-next-plain", {"indexer_types": [*["full"] * 3, "shared"]}, U, "layer 3 take what layer 2 chose"),
        ("glm5-next-plain", {"index_topk_pattern": "FFFS"}, U, "index_topk_pattern makes layer 3 take"),
        ("glm5-next-plain", {"index_topk_freq": 3}, U, "index_topk_freq makes layer 3 take"),
        ("glm5-next-streams", {"indexer_types": ["full", "full", "full", "shared", "x"]}, C, "indexer_types = "),
        ("glm5-next-plain", {"linear_lower_bound": 1.0}, C, "linear_lower_bound = 1.0.*from -80 to below 0"),
        (
            "glm5-next-plain",
            {"linear_attn_config": {"gate_lower_bound": 0.5, "num_heads": 2}},
            C,
            "linear_attn_config: gate_lower_bound = 0.5.*from -80",
        ),
        ("glm5-next-plain", {"hc_mult": 0}, C, "hc_mult = 0"),
        ("glm5-next-plain", {"swiglu_limit": 0.0}, C, "swiglu_limit = 0.0.*a positive number"),
        ("glm5-next-plain", {"mhc": False}, U, "mhc = false"),
        ("glm5-next-plain", {"scoring_func": "softmax"}, U, "scoring_func = .softmax."),
        ("glm5-next-plain", {"attention_bias": True}, U, "attention_bias = true"),
        *listed("errors"),
    ],
)
def test_errors(name: str, change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        family(name, change)


@pytest.mark.parametrize(
    ("name", "change", "note"),
    [
        ("olmo3", {"rope_theta": 1e4}, "one rope_theta on all layers"),
        ("olmo3", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("olmo3", {"attention_bias": True}, "no bias in this architecture"),
        ("qwen2moe", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("qwen2moe", {"norm_topk_prob": True}, "llama.cpp takes norm_topk_prob = false"),
        ("qwen2moe", {"mlp_only_layers": [1]}, "all layers have experts"),
        ("seed-oss", {"attention_out_bias": True}, "no place for biases of attention's output"),
        ("seed-oss", {"mlp_bias": True}, "no place for biases"),
        ("exaone4", {"sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]}, "64 layers, and no"),
        ("apertus", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("arcee", {"mlp_bias": True}, "no place for biases of attention's output"),
        ("nemotron", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("phimoe", {"lm_head_bias": False}, "biases of it and of attention"),
        ("phimoe", {}, "RMS norms and one softmax"),
        ("exaone4", {"head_dim": 24}, "together are as wide as the model"),
        ("hunyuan", {"attention_bias": True}, "no bias in this architecture"),
        ("stablelm", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("dots1", {"tie_word_embeddings": True}, "an output matrix apart"),
        ("dots1", {"num_key_value_heads": 1}, "as many heads of keys as of queries"),
        ("dots1", {"attention_bias": True}, "no bias in this architecture"),
        ("dots1", {"sliding_window": 9, "max_window_layers": 2}, "beyond 9 tokens its results differ"),
        ("ernie4_5", {"use_bias": True}, "no place for biases of feed-forward parts"),
        ("ernie4_5-moe", {"moe_layer_end_index": 1}, "here some have not"),
        ("ernie4_5-moe", {"moe_layer_interval": 2}, "here some have not"),
        ("qwen2moe", {"use_sliding_window": True, "sliding_window": 9}, "beyond 9 tokens its results differ"),
        ("qwen3next", {"mlp_only_layers": [1]}, "all layers have experts"),
        ("qwen3next", {"linear_value_head_dim": 16}, "heads of keys and values have one size"),
        ("gemma2", {"query_pre_attn_scalar": 64}, "another query_pre_attn_scalar than 64"),
        ("falcon-h1", {"mamba_proj_bias": True}, "Mamba layers have no biases"),
        ("falcon-h1", {"projectors_bias": True}, "Mamba layers have no biases"),
        ("falcon-h1", {"attention_bias": True}, "leaves out the bias of attention's output"),
        ("falcon-h1", {"mamba_rms_norm": True}, "applies Mamba's gate before the norm"),
        ("falcon-h1", {"time_step_limit": [0.01, 0.5]}, "does not keep step sizes within 0.01 and 0.5"),
        ("lfm3", {}, "no such architecture"),
        ("zamba", {}, "no such architecture"),
        ("zamba2", {}, "no such architecture"),
        ("zaya", {}, "no such architecture"),
        ("phi4flash", {}, "no such architecture"),
        ("gptneox", {}, "computes GELU by its tanh formula"),
        ("falcon", {}, "computes GELU by its tanh formula"),
        ("gptneox-yarn", {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 9.0}}, "takes no beta_fast"),
        ("gptneox-serial", {"tie_word_embeddings": True}, "a matrix of its own"),
        ("gptneox-serial", {"attention_bias": False}, "there attention has biases"),
        ("olmo-hybrid", {}, "no such architecture"),
        ("xlstm", {}, "no such architecture"),
        ("recurrentgemma", {}, "no such architecture"),
        ("kimi-linear", {"linear_num_heads": 5}, "as many heads as attention"),
        ("kimi-linear", {}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("kimi-linear", {"q_lora_rank": 20}, "queries come straight from a layer's input"),
        ("kimi-linear", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
        ("kimi-k3", _k3(num_heads=4), "as many heads as attention"),
        ("kimi-k3", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("kimi-k3", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
        ("bailing-hybrid", {"linear_num_heads": 4}, "as many heads as attention"),
        ("bailing-hybrid", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("deepseek-v2-groups", {"q_lora_rank": None}, "with 3 layers queries have latent vectors there"),
        ("deepseek-v2-groups", {}, "chooses groups of experts by their two best"),
        ("deepseek-v3", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("kimi-linear", {"moe_renormalize": False}, "norm_topk_prob = true"),
        ("glm5-next-plain", {"linear_num_heads": 4}, "as many heads as attention"),
        ("glm5-next-plain", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
        ("glm5-next-plain", {"hc_mult": 3}, "a model has 4 residual streams"),
        ("glm5-next-plain", {"index_kpool": 1}, "a pool has two tokens or more"),
        ("qwen4exp", {}, "chooses other groups of tokens than transformers"),
        ("qwen4exp", {}, "llama.cpp takes output_gate_type = sigmoid"),
        ("qwen4exp", {}, "n-gram embeddings are as wide as the model, here they are not"),
        ("qwen4exp", {}, "the last of several eos_token_id as the end of n-grams"),
        ("qwen4exp", {}, "heads of keys and values have one size"),
        ("qwen4exp", {}, "llama.cpp takes norm_topk_prob = true"),
        ("qwen4exp", {"attention_bias": True}, "no bias in this architecture"),
        ("qwen4exp", {"heads_per_ngram": 30}, "at most 8 tokens and 64 rows of the table"),
        *listed("notes"),
    ],
)
def test_notes(name: str, change: dict[str, Any], note: str) -> None:
    assert note in " ".join(family(name, change).notes())
    if change:
        assert note not in " ".join(family(name, {}).notes())


@pytest.mark.parametrize(
    ("change", "lowest"),
    [
        ({}, None),
        ({"linear_lower_bound": -2.5}, -2.5),
        ({"linear_lower_bound": -2.5, "linear_attn_config": {"num_heads": 2}}, -2.5),
        ({"linear_attn_config": {"num_heads": 2}}, -5.0),
        ({"linear_attn_config": {"safe_gate": False}}, None),
        ({"linear_attn_config": {"gate_lower_bound": -1.5, "safe_gate": False}}, -1.5),
        ({"linear_lower_bound": -2.5, "linear_attn_config": {"gate_lower_bound": None}}, -5.0),
    ],
)
def test_lowest_decay_of_glm(change: dict[str, Any], lowest: float | None) -> None:
    """As transformers' config class has it."""
    keys = dict(family("glm5-next-plain", change).keys(FileType.F16))
    assert keys.get("kda.gate_lower_bound") == lowest


def test_layers_of_glm() -> None:
    """By default every fourth layer has attention, and every layer makes its own selection."""
    keys = dict(family("glm5-next-plain", {"num_hidden_layers": 9}).keys(FileType.F16))
    assert keys["attention.head_count_kv"] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert keys["attention.indexer.types"] == [True] * 9


def test_glm_without_layers_that_guess_ahead() -> None:
    left_out = family("glm5-next-plain", {"num_nextn_predict_layers": 1}).left_out()
    assert "model.language_model.layers.4.self_attn.q_proj.weight".startswith(left_out)
    assert not "model.language_model.layers.3.self_attn.q_proj.weight".startswith(left_out)
    assert "model.visual.merger.proj.weight".startswith(left_out)


def test_kimi_as_llama_cpp_runs_it() -> None:
    """Published except for the epsilon: no notes."""
    assert not list(family("kimi-linear", {"rms_norm_eps": 1e-6}).notes())


@pytest.mark.parametrize(
    ("change", "windows", "turned"),
    [
        ({}, [9, 9, 0, 9, 9], 4),
        ({"sliding_window_pattern": "LG"}, [9, 0, 9, 0, 9], 3),
        ({"sliding_window_pattern": None}, [9, 9, 9, 0, 9], 4),
        ({"sliding_window": None}, [0] * 5, 5),
        ({"layer_types": ["full_attention"] * 5}, [0] * 5, 0),
    ],
)
def test_windows_of_exaone4(change: dict[str, Any], windows: list[int], turned: int) -> None:
    """Only layers with a window have RoPE, unless sliding_window is null."""
    model = family("exaone4-window", change)
    keys = dict(model.keys(FileType.F32))
    assert list(model.windows) == windows
    assert keys.get("attention.sliding_window", 0) == (0 if turned == 5 else 9)
    assert keys.get("attention.sliding_window_pattern", [True] * 5) == [w > 0 or turned == 5 for w in windows]


def test_deepseek_without_a_word_on_q_lora_rank() -> None:
    """transformers' default is 1536."""
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["deepseek-v3"]}
    del config["q_lora_rank"]
    with pytest.raises(C, match="has no q_lora_rank, expected a number, or null"):
        random_checkpoints.family_for(config)


@pytest.mark.parametrize(("name", "n"), [("kimi-linear", 4), ("bailing-hybrid", 4), ("deepseek-v3", 3)])
def test_layers_that_guess_ahead_are_left_out(name: str, n: int) -> None:
    made = family(name, {"num_nextn_predict_layers": 2})
    assert [made.left_out()[-2:], family(name, {}).left_out()] == [
        (f"model.layers.{n}.", f"model.layers.{n + 1}."),
        family(name, {}).dropped,
    ]


@pytest.mark.parametrize("name", ["deepseek-v3-yarn-mtp", "bailing-hybrid-mtp"])
def test_heads_that_the_config_does_not_tell_of(name: str) -> None:
    """A head that only the tensors show is converted, or left out as a whole."""
    config, shapes = random_heads.WITH_HEADS[name]
    config = {**config, "vocab_size": 8, "max_position_embeddings": 512, "num_nextn_predict_layers": 0}
    own, n = random_checkpoints.family_for(config, shapes), config["num_hidden_layers"]
    assert dict(own.keys(FileType.F32))["nextn_predict_layers"] == 1 and own.left_out() == own.dropped
    without = own.with_heads(0)
    assert "nextn_predict_layers" not in dict(without.keys(FileType.F32))
    assert dict(without.keys(FileType.F32))["block_count"] == n and without.left_out()[-1] == f"model.layers.{n}."


def test_zamba_without_a_list_of_layers() -> None:
    """The third layer, and every Nth layer after it."""
    change = {"layers_block_type": None, "num_hidden_layers": 14, "attn_layer_period": 4, "attn_layer_offset": 1}
    assert family("zamba", change).transformers.users == (2, 4, 8, 12)


def test_zamba2_keeps_a_block_at_its_first_user() -> None:
    targets = [row.target for row in family("zamba2", {}).rows()]
    assert [t for t in targets if t.endswith("attn_q.weight")] == ["blk.1.attn_q.weight", "blk.2.attn_q.weight"]
    assert [t for t in targets if t.endswith("attn_q_lora_a.weight")] == [
        f"blk.{i}.attn_q_lora_a.weight" for i in (1, 2, 4)
    ]


def test_lfm2_width() -> None:
    """Two thirds of the config's width, times a factor, rounded up to a multiple; or unchanged."""
    assert family("lfm2", {"intermediate_size": 200}).n_ff == 160
    assert family("lfm2", {"intermediate_size": 200, "block_ffn_dim_multiplier": 0.5}).n_ff == 96
    assert family("lfm2", {"intermediate_size": 200, "block_auto_adjust_ff_dim": False}).n_ff == 200


SPELLED = {
    "hunyuan": (
        {
            "use_cla": False,
            "attention_head_dim": 24,
            "head_dim": None,
            "mlp_bias": False,
            "rope_scaling": {
                "type": "dynamic",
                "alpha": 1000.0,
                "factor": 1.0,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
        {"attention.key_length": 24, "rope.freq_base": 10000.0 * 1000 ** (24 / 22), "context_length": 262144},
    ),
    "dots1": ({"scoring_func": "noaux_tc"}, {"expert_gating_func": 2}),
    "ernie4_5": ({"compression_ratio": 1.0, "head_dim": None}, {"rope.freq_base": 5e5}),
    "cohere2": (
        {
            "position_embedding_type": "rope_gptj",
            "rotary_pct": 1.0,
            "use_gated_activation": True,
            "layer_switch": 4,
            "use_parallel_block": True,
            "use_qk_norm": False,
            "order_of_interleaved_layers": "local_attn_first",
        },
        {"attention.sliding_window": 11, "logit_scale": 0.25},
    ),
    "exaone4-window": ({"sliding_window_pattern": "LLLG"}, {"attention.sliding_window": 9}),
}


@pytest.mark.parametrize("name", SPELLED)
def test_what_published_configs_say(name: str) -> None:
    change, expected = SPELLED[name]
    if name.startswith("ernie"):
        change = {**change, "num_attention_heads": 6, "num_key_value_heads": 2}
    if name == "hunyuan":
        change = {**change, "max_position_embeddings": 32768}
    keys = dict(family(name, change).keys(FileType.F32))
    assert {key: keys[key] for key in expected} == pytest.approx(expected)
