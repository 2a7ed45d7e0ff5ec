"""Text models within other classes (wrappers.py): their families, and their differences from these.

A text model is converted as if it were a checkpoint of its class in TEXTS. Its fields are changed by CHANGED, the names
of its tensors by RENAMED, the tensors themselves by MADE.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..checkpoint import Config, Dtype, StoredTensor

# model_type of a text model -> its class
TEXTS: Mapping[str, str] = {
    "apertus": "ApertusForCausalLM",
    "apertus1p5_text": "ApertusForCausalLM",
    "aria_text": "DeepseekForCausalLM",
    "bailing_hybrid": "BailingMoeV3ForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "cosmos3_edge_text": "ArceeForCausalLM",
    "deepseek_ocr2_text": "DeepseekForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "ernie4_5_vl_moe_text": "Ernie4_5_MoeForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "exaone4_5_text": "Exaone4ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_unified_text": "Gemma4ForCausalLM",
    "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM",
    "glm_ocr_text": "Glm4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granite_docling_text": "GraniteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "hunyuan_vl_text": "HunYuanDenseV1ForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
    "inkling2_loop_text": "Inkling2LoopForCausalLM",
    "inkling2_text": "Inkling2ForCausalLM",
    "inkling_text": "InklingForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "molmo2_text": "Qwen3ForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "paddleocr_vl_text": "LlamaForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_omni_text": "Qwen2_5_VLForConditionalGeneration",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
}

# transformers' sizes of text models: published configs of wrappers leave these out
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
USUAL: Mapping[str, Mapping[str, Any]] = {
    "aria_text": {
        "moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2, "max_position_embeddings": 2048,
        "intermediate_size": 4096,
    },
    "cohere2": dict(zip(_SIZES, (8192, 22528, 40, 64, 256000), strict=True)),
    "deepseek_ocr2_text": {
        "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, "num_experts_per_tok": 6,
        "max_position_embeddings": 2048,
    },
    "cosmos3_edge_text": {"hidden_act": "relu2", "head_dim": 128, "num_key_value_heads": 8, "rope_theta": 1e8},
    "ernie4_5_vl_moe_text": {"moe_k": 6, "num_key_value_heads": 4},
    "glm4v_text": {"attention_bias": True, "rms_norm_eps": 1e-5},
    "glm4v_moe_text": {"attention_bias": True},
    "glm_ocr_text": {"attention_bias": False, "rms_norm_eps": 1e-5},
    "granite_docling_text": {
        "embedding_multiplier": 12.0, "logits_scaling": 4.0, "residual_multiplier": 0.263,
        "attention_multiplier": 0.015625, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    },
    "gemma4_unified_text": {"max_position_embeddings": 262144, "sliding_window": 1024},
    "llama": dict(zip(_SIZES, (4096, 11008, 32, 32, 32000), strict=True)),
    "mistral": {**dict(zip(_SIZES, (4096, 14336, 32, 32, 32000), strict=True)), "num_key_value_heads": 8},
    "molmo2_text": {"head_dim": 128, "num_key_value_heads": 8},
    "paddleocr_vl_text": {
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "head_dim": 128,
        "num_key_value_heads": 2,
    },
    "qwen2": {**dict(zip(_SIZES, (4096, 22016, 32, 32, 151936), strict=True)), "num_key_value_heads": 32},
    "qwen3": {**dict(zip(_SIZES, (4096, 22016, 32, 32, 151936), strict=True)), "num_key_value_heads": 32},
    "qwen3_vl_text": {"rope_theta": 5e5, "head_dim": 128},
    "qwen3_vl_moe_text": {"rope_theta": 5e5},
}  # fmt: skip


def usual_fields(kind: str, text: Config) -> dict[str, Any]:
    """The fields of USUAL; the base of RoPE only if the text model's settings of RoPE have none."""
    stated = "rope_theta" in text.section("rope_parameters", "rope_scaling")
    return {key: value for key, value in USUAL.get(kind, {}).items() if not (key == "rope_theta" and stated)}


def without_rows(fields: dict[str, Any]) -> None:
    """Takes the rows and columns of pictures out of the settings of RoPE (M-RoPE)."""
    fields.pop("mrope_section", None)
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(fields.get(name), dict):
            rope = {key: value for key, value in fields[name].items() if key not in _ROWS}
            fields[name] = {
                key: _KINDS.get(value, value) if key in ("rope_type", "type") and isinstance(value, str) else value
                for key, value in rope.items()
            }


_ROWS = ("mrope_section", "mrope_interleaved", "xdrope_section")
_KINDS = {"mrope": "default", "xdrope": "dynamic"}


def _glm4v(config: Config) -> dict[str, Any]:
    """What the text model of GLM-4.1V has where its config does not say it, and GLM 4 has not."""
    made: dict[str, Any] = {"head_dim": config.integer("hidden_size") // config.integer("num_attention_heads")}
    if "partial_rotary_factor" not in config.section("rope_parameters", "rope_scaling"):
        made["partial_rotary_factor"] = 1.0
    return made | dict(config.data)


def _paddleocr(config: Config) -> dict[str, Any]:
    biased = config.boolean("use_bias", default=False)
    config.expects("compression_ratio", 1.0, 1)
    data = {key: value for key, value in config.data.items() if key not in ("use_bias", "compression_ratio")}
    return data | {"attention_bias": biased, "mlp_bias": biased}


def _ernie_vl(config: Config) -> dict[str, Any]:
    """A field with two values: the first counts in texts, the second in pictures."""
    made = {
        key: value[0] if isinstance(value := config.get(key), list) and value else value
        for key in _PAIRS
        if config.get(key) is not None
    }
    data = {**config.data, **made}
    kinds = data.pop("mlp_layer_types", None)
    if kinds is not None:
        first = kinds.count("dense") if isinstance(kinds, list) else 0
        if kinds != ["dense"] * first + ["sparse"] * (config.integer("num_hidden_layers") - first):
            raise config.wrong("mlp_layer_types", "layers without experts before all layers with experts")
        data |= {"moe_layer_start_index": first, "moe_layer_end_index": -1, "moe_layer_interval": 1}
    return data


_PAIRS = ("moe_num_experts", "moe_intermediate_size", "moe_layer_start_index", "moe_layer_end_index")


def _with_rows_of_the_output(config: Config) -> dict[str, Any]:
    """The vocabulary has the tokens of the output matrix: others are pictures and sounds."""
    n = config.integer("output_vocab_size", default=config.integer("vocab_size"))
    return {key: value for key, value in config.data.items() if key != "output_vocab_size"} | {"vocab_size": n}


def _molmo2(config: Config) -> dict[str, Any]:
    config.expects("qk_norm_type", "qwen3")
    config.expects("norm_after", False)
    layers = list(range(config.integer("num_hidden_layers", maximum=4096)))
    if "rope_scaling_layers" in config:
        config.expects("rope_scaling_layers", layers)
    for key in ("qkv_bias", "attention_bias"):
        config.expects(key, False)
    names = {"layer_norm_eps": "rms_norm_eps"}
    idle = ("qk_norm_type", "norm_after", "rope_scaling_layers", "additional_vocab_size", "use_qk_norm", "qkv_bias")
    return {names.get(key, key): value for key, value in config.data.items() if key not in idle}


def _aria(config: Config) -> dict[str, Any]:
    """Experts on all layers; the weights of a token's experts are the softmax of their scores alone."""
    names = {
        "intermediate_size": "moe_intermediate_size", "moe_num_experts": "n_routed_experts",
        "moe_topk": "num_experts_per_tok", "moe_num_shared_experts": "n_shared_experts",
    }  # fmt: skip
    data = {names.get(key, key): value for key, value in config.data.items()}
    return data | {"intermediate_size": data["moe_intermediate_size"], "norm_topk_prob": True}


def _deepseek_ocr(config: Config) -> dict[str, Any]:
    config.expects("use_mla", False)
    config.expects("norm_topk_prob", False)
    idle = (
        *("use_mla", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "head_dim"),
        *("lm_head", "rm_head"),
    )
    return {key: value for key, value in config.data.items() if key not in idle}


def _gemma4(config: Config) -> dict[str, Any]:
    return {**config.data, "hidden_size_per_layer_input": 0, "enable_moe_block": False}


def _normed_weights(config: Config) -> dict[str, Any]:
    return {**config.data, "norm_topk_prob": True}  # as in transformers, whatever the config says


# model_type of a text model -> the fields of its class
CHANGED: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "apertus1p5_text": _with_rows_of_the_output,
    "aria_text": _aria,
    "deepseek_ocr2_text": _deepseek_ocr,
    "ernie4_5_vl_moe_text": _ernie_vl,
    "gemma4_unified_text": _gemma4,
    "glm4v_text": _glm4v,
    "glm_ocr_text": _glm4v,
    "molmo2_text": _molmo2,
    "paddleocr_vl_text": _paddleocr,
    "qwen3_vl_moe_text": _normed_weights,
}

_DIFFUSERS = (
    (".self_attn.to_q.", ".self_attn.q_proj."),
    (".self_attn.to_k.", ".self_attn.k_proj."),
    (".self_attn.to_v.", ".self_attn.v_proj."),
    (".self_attn.to_out.", ".self_attn.o_proj."),
)
# model_type of a text model -> parts of the names of its tensors, and of its class's
RENAMED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "aria_text": (
        (".mlp.router.", ".mlp.gate."), (".mlp.experts.fc1.weight", ".mlp.experts.gate_up_proj"),
        (".mlp.experts.fc2.weight", ".mlp.experts.down_proj"),
    ),
    "cosmos3_edge_text": (*_DIFFUSERS, (".mlp.fc1.", ".mlp.up_proj."), (".mlp.fc2.", ".mlp.down_proj.")),
    "ernie4_5_vl_moe_text": (
        (".mlp.text_moe.gate.moe_statics.", ".mlp.moe_statics."), (".mlp.text_moe.", ".mlp."),
    ),
    "molmo2_text": (
        ("model.blocks.", "model.layers."), ("model.ln_f.", "model.norm."), (".attn_norm.", ".input_layernorm."),
        (".ff_norm.", ".post_attention_layernorm."), (".self_attn.attn_out.", ".self_attn.o_proj."),
        (".mlp.ff_out.", ".mlp.down_proj."), ("model.wte.embedding", "model.embed_tokens.weight"),
    ),
    "qwen3_vl_text": (*_DIFFUSERS, (".self_attn.norm_q.", ".self_attn.q_norm."),
                      (".self_attn.norm_k.", ".self_attn.k_norm.")),
}  # fmt: skip

Made = Iterator[tuple[str, StoredTensor]]


def _experts(config: Config, name: str, tensor: StoredTensor) -> Made:
    """Matrices of experts from their stack. Published stacks are transposed, stacks that transformers 5 wrote
    are not."""
    n, n_ff = config.integer("hidden_size"), config.integer("moe_intermediate_size")
    stem, _, part = name.rpartition(".")
    both = part == "gate_up_proj"
    shape = (2 * n_ff, n) if both else (n, n_ff)
    if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")) or tensor.shape[1:] not in (
        shape,
        shape[::-1],
    ):
        yield name, tensor
        return
    stack = tensor if tensor.shape[1:] == shape else tensor.turned()
    for e in range(stack.shape[0]):
        if both:
            yield f"{stem}.{e}.gate_proj.weight", stack.part((e, 0, 0), (n_ff, n))
            yield f"{stem}.{e}.up_proj.weight", stack.part((e, n_ff, 0), (n_ff, n))
        else:
            yield f"{stem}.{e}.down_proj.weight", stack.part((e, 0, 0), shape)


def _turned_experts(config: Config, name: str, tensor: StoredTensor) -> Made:
    """As `_experts`, of stacks that are always transposed."""
    stacked = name.endswith((".experts.gate_up_proj", ".experts.down_proj")) and len(tensor.shape) == 3
    yield from _experts(config, name, tensor.turned() if stacked else tensor)


def _text_experts(config: Config, name: str, tensor: StoredTensor) -> Made:
    """The router and the experts of texts. Experts of pictures have higher numbers."""
    n, n_expert = config.integer("hidden_size"), config.integer("moe_num_experts")
    number = name.partition(".mlp.experts.")[2].partition(".")[0]
    if number.isdecimal() and int(number) >= n_expert:
        return
    if name.endswith(".mlp.gate.weight") and tensor.shape == (n, n_expert):
        yield name, tensor.turned()
    elif name.endswith(".moe_statics.e_score_correction_bias") and tensor.shape == (2, n_expert):
        yield name, tensor.part((0, 0), (1, n_expert))
    else:
        yield from _experts(config, name, tensor)


def _first_rows(config: Config, name: str, tensor: StoredTensor) -> Made:
    """The embedding's rows of text tokens: the output matrix has no others."""
    n, rows = config.integer("hidden_size"), config.integer("vocab_size")
    more = name == "model.embed_tokens.weight" and tensor.shape[0] > rows
    yield name, tensor.part((0, 0), (rows, n)) if more and tensor.shape[1:] == (n,) else tensor


def _joined_matrices(config: Config, name: str, tensor: StoredTensor) -> Made:
    """Molmo 2: rows of queries, keys and values are one matrix, and rows of up, then gate."""
    n, n_ff = config.integer("hidden_size"), config.integer("intermediate_size")
    n_head, n_kv = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    d = config.integer("head_dim", default=128)
    attention = {"q": n_head * d, "k": n_kv * d, "v": n_kv * d}
    stem, _, part = name.rpartition(".")
    if stem.endswith(".self_attn.att_proj"):
        sizes = {f"{stem.removesuffix('att_proj')}{x}_proj": rows for x, rows in attention.items()}
    elif stem.endswith(".mlp.ff_proj"):
        sizes = {f"{stem.removesuffix('ff_proj')}{x}_proj": n_ff for x in ("up", "gate")}
    else:
        yield from _first_rows(config, name, tensor)
        return
    if tensor.shape[0] != sum(sizes.values()) or tensor.shape[1:] not in ((), (n,)):
        yield name, tensor
        return
    first = 0
    for new, rows in sizes.items():
        rest = tensor.shape[1:]
        yield f"{new}.{part}", tensor.part((first, *[0] * len(rest)), (rows, *rest))
        first += rows


_MADE: Mapping[str, Callable[[Config, str, StoredTensor], Made]] = {
    "apertus1p5_text": _first_rows,
    "aria_text": _turned_experts,
    "deepseek_ocr2_text": _experts,
    "ernie4_5_vl_moe_text": _text_experts,
    "molmo2_text": _joined_matrices,
    "qwen3_vl_moe_text": _experts,
}


def made(kind: str, config: Config, name: str, tensor: StoredTensor) -> Made:
    """The tensors of the class that this tensor of a text model becomes. config: of the class; name: renamed."""
    if kind in _MADE and isinstance(tensor.dtype, Dtype) and tensor.shape:
        yield from _MADE[kind](config, name, tensor)
    else:
        yield name, tensor
