"""Jet-Nemotron. transformers lacks it: the twin follows the published code, its own and SGLang's."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.recurrent import F64, conv1d_dynamic, delta_rule, gated_norm, l2_norm, sigmoid, silu, softplus

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "JetNemotronForCausalLM"


def jet_nemotron(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]; `model` is families.Reference."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    own, d = c["efficient_attention_config"], c["hidden_size"] // c["num_attention_heads"]
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        if kind == "jet":
            x = x + jet_block(model, h, p + "self_attn.", own["jet"])
        else:
            q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj") for part in "qkv")
            y = model.attend(q, k, v, d, d, window=own["swa"]["window_size"] if kind == "swa" else 0)
            x = x + model.linear(y, p + "self_attn.o_proj")
        x = x + model.gated(model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def jet_block(model: Any, h: F64, p: str, c: dict[str, Any]) -> F64:
    """`h` after a layer's mixer; c: the config's settings of JetBlock."""
    n_tok, n_head, taps = len(h), c["num_heads"], c["conv_size"]
    q, k = (silu(model.linear(h, f"{p}{part}_proj")).reshape(n_tok, n_head, -1) for part in "qk")
    v = model.linear(h, p + "v_proj")
    generator = p + "dynamic_conv1d.kernel_generator."
    kernels = model.linear(silu(model.linear(h, generator + "w1")), generator + "w2")  # by channel, then by tap
    kernels = kernels.reshape(n_tok, -1, taps).swapaxes(1, 2)
    v, _ = conv1d_dynamic(v, kernels, np.zeros((taps - 1, v.shape[1])))
    v = v.reshape(n_tok, n_head, -1)
    beta = sigmoid(model.linear(h, p + "b_proj"))
    steps = softplus(model.linear(h, p + "a_proj") + model.t[p + "dt_bias"])
    decay = np.exp(-np.exp(model.t[p + "A_log"]) * steps)[:, :, None]
    d_k, state = q.shape[2], np.zeros((n_head, q.shape[2], v.shape[2]))
    y, _ = delta_rule(l2_norm(q, 1e-6) * d_k**-0.5, l2_norm(k, 1e-6), v, decay, beta, state)
    z = model.linear(h, p + "g_proj").reshape(v.shape)
    y = gated_norm(y, z, model.t[p + "o_norm.weight"], float(c.get("norm_eps", 1e-5)), norm_first=True)
    return model.linear(y.reshape(n_tok, -1), p + "o_proj")


_JET: dict[str, Any] = {
    "conv_size": 3, "dconv_generator_reduction": 5, "expand_v": 1.6666666667, "head_dim": 12, "mode": "chunk",
    "norm_eps": "1e-4", "num_heads": 5, "dconv_implementation": "triton",
}  # fmt: skip
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "rope_theta": 2e4,
}  # fmt: skip
_WITH_JET = {"efficient_attention_config": {"jet": {**_JET, "norm_eps": "small"}}}
_NO_WHOLE_HEADS = {"efficient_attention_config": {"jet": {**_JET, "expand_v": 1.7}, "swa": {"window_size": 9}}}
_FEW_VALUES = {"efficient_attention_config": {"jet": {**_JET, "dconv_generator_reduction": 101}}}
_JET_LAYERS = {"layer_types": ["jet", "attn", "jet", "jet"]}
ROWS = FamilyRows(
    configs={
        "jet-nemotron": {
            **_SIZES, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
            "layer_types": ["jet", "swa", "jet", "attn"], "tie_word_embeddings": True,
            "efficient_attention_config": {"jet": _JET, "swa": {"window_size": 9}},
        },
        "jet-nemotron-yarn": {
            **_SIZES, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
            "layer_types": ["attn", "jet"], "tie_word_embeddings": False,
            "efficient_attention_config": {"jet": {
                "conv_size": 4, "dconv_generator_reduction": 8, "expand_v": 2, "head_dim": 20, "num_heads": 3,
            }},
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        },
    },
    repeated=("jet-nemotron-yarn",),
    twins={NAME: jet_nemotron},
    published={NAME: {
        "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu",
        "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 8960, "max_position_embeddings": 131072,
        "max_window_layers": 28, "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000.0, "tie_word_embeddings": True,
        "use_cache": True, "use_mrope": False, "vocab_size": 151936,
        "layer_types": [*["jet"] * 14, "attn", *["jet"] * 4, "attn", "swa", "swa", *["jet"] * 6],
        "efficient_attention_config": {
            "jet": {
                "conv_size": 4, "dconv_generator_reduction": 8, "dconv_implementation": "triton",
                "expand_v": 2.6666666667, "head_dim": 96, "mode": "chunk", "norm_eps": "1e-5", "num_heads": 12,
            },
            "swa": {"window_size": 1152},
        },
    }},
    errors=(
        ("jet-nemotron", {"use_mrope": True}, UnsupportedError, "use_mrope = true"),
        ("jet-nemotron", {"layer_types": ["gdn"] * 4}, CheckpointError, "4 times jet or swa or attn"),
        ("jet-nemotron", {"efficient_attention_config": {"jet": _JET}}, CheckpointError, "window_size"),
        ("jet-nemotron", _NO_WHOLE_HEADS, CheckpointError, "expand_v = 1.7.*a whole number of head_dim = 12"),
        ("jet-nemotron", {**_JET_LAYERS, **_WITH_JET}, CheckpointError, 'norm_eps = "small".*a small positive number'),
        ("jet-nemotron", {**_JET_LAYERS, **_FEW_VALUES}, CheckpointError, "reduction = 101.*at most 100, the width"),
    ),
    notes=(("jet-nemotron", {}, "no such architecture"),),
    refused=("jet-nemotron", "jet-nemotron-yarn"),
    loaded=("jet-nemotron",),
)  # fmt: skip
