"""OpenELM in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.recurrent import F64, silu


def openelm(model: Any, ids: list[int]) -> F64:
    c, d = model.c, model.c["head_dim"]
    model.eps, model.theta = 1e-6, c["rope_freq_constant"]
    x = model.t["transformer.token_embeddings.weight"][ids]
    for i, (n_q, n_kv) in enumerate(zip(c["num_query_heads"], c["num_kv_heads"], strict=True)):
        p = f"transformer.layers.{i}."
        rows = model.linear(model.norm(x, p + "attn_norm"), p + "attn.qkv_proj").reshape(len(ids), -1, d)
        q, k, v = np.split(rows, [n_q, n_q + n_kv], axis=1)
        y = model.attend(model.norm(q, p + "attn.q_norm"), model.norm(k, p + "attn.k_norm"), v, d, d)
        x = x + model.linear(y, p + "attn.out_proj")
        h = model.norm(x, p + "ffn_norm")
        # proj_1's halves: here in the parts into which the converter splits it
        gate, up = (h @ model.t[f"{p}ffn.proj_1.{part}"].T for part in ("gate", "up"))
        x = x + model.linear(silu(gate) * up, p + "ffn.proj_2")
    return model.head(model.norm(x, "transformer.norm"), "transformer.token_embeddings.weight")
