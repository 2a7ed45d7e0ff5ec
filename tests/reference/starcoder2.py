"""StarCoder2 and Phi-2 in float64; `model` is families.Reference."""

from typing import Any

from reference.gemma4 import gelu
from reference.recurrent import F64


def starcoder2(model: Any, ids: list[int]) -> F64:
    """StarCoder2, and Phi-2, whose two parts read the same rows."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    model.eps = c.get("norm_epsilon") or c["layer_norm_eps"]
    d, phi = c["hidden_size"] // c["num_attention_heads"], c["architectures"] == ["PhiForCausalLM"]
    out, up, down = ("dense", "fc1", "fc2") if phi else ("o_proj", "c_fc", "c_proj")
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.layer_norm(x, p + "input_layernorm")
        q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj") for part in "qkv")
        y = model.attend(q, k, v, d, int(d * model.part), window=model.window(i))
        x = x + model.linear(y, f"{p}self_attn.{out}")
        h = h if phi else model.layer_norm(x, p + "post_attention_layernorm")
        x = x + model.linear(gelu(model.linear(h, f"{p}mlp.{up}")), f"{p}mlp.{down}")
    x = model.layer_norm(x, "model.final_layernorm" if phi else "model.norm")
    return model.linear(x, "lm_head") if phi else model.head(x, "model.embed_tokens.weight")
