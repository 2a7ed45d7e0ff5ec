"""GPT-2 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.gemma4 import gelu
from reference.recurrent import F64


def gpt2(model: Any, ids: list[int]) -> F64:
    c, model.eps = model.c, model.c["layer_norm_epsilon"]
    x = model.t["wte.weight"][ids] + model.t["wpe.weight"][: len(ids)]

    def linear(x: F64, name: str) -> F64:
        return x @ model.t[name + ".weight"] + model.t[name + ".bias"]

    for i in range(c["n_layer"]):
        p = f"h.{i}."
        q, k, v = np.split(linear(model.layer_norm(x, p + "ln_1"), p + "attn.c_attn"), 3, axis=1)
        x = x + linear(model.attend(q, k, v, c["n_embd"] // c["n_head"], 0), p + "attn.c_proj")
        x = x + linear(gelu(linear(model.layer_norm(x, p + "ln_2"), p + "mlp.c_fc")), p + "mlp.c_proj")
    return model.head(model.layer_norm(x, "ln_f"), "wte.weight")
