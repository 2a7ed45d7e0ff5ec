"""RWKV-4 to RWKV-7 in float64, from the papers' formulas (arXiv:2305.13048, arXiv:2404.05892, arXiv:2503.14456): slow
and obvious. Counterparts of infer/kernels/{rwkv,wkv}.py, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
from reference.recurrent import F64, sigmoid, silu


def token_shift(x: F64, past: F64) -> F64:
    """x [tok, C], past [C] -> the row before each token."""
    return np.concatenate([past[None], x[:-1]])


def layer_norm(x: F64, weight: F64, bias: F64, eps: float) -> F64:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def wkv4(k: F64, v: F64, w: F64, u: F64, before: F64) -> tuple[F64, F64]:
    """k, v [tok, C], w (logarithms of decays), u [C]; before [2, C], sums over earlier tokens -> y, sums after."""
    total, count = np.array(before, np.float64)
    y = np.empty(v.shape)
    for t in range(len(v)):
        own = np.exp(u + k[t])
        y[t] = (total + own * v[t]) / (count + own)
        total, count = (np.exp(w) * old + np.exp(k[t]) * new for old, new in ((total, v[t]), (count, 1.0)))
    return y, np.stack([total, count])


def wkv6(r: F64, k: F64, v: F64, w: F64, u: F64, state: F64) -> tuple[F64, F64]:
    """r, k, v, w [tok, head, d] (w: factors of the state), u [head, d], state [head, key, value] -> y, state after."""
    S = np.array(state, np.float64)
    y = np.empty(v.shape)
    for t in range(len(v)):
        for h in range(v.shape[1]):
            added = np.outer(k[t, h].astype(np.float64), v[t, h])
            y[t, h] = r[t, h] @ (u[h][:, None] * added + S[h])
            S[h] = w[t, h][:, None] * S[h] + added
    return y, S


def gla(r: F64, k: F64, v: F64, w: F64, scale: float, state: F64) -> tuple[F64, F64]:
    """Gated linear attention: all [tok, head, d] -> y, state after."""
    S = np.array(state, np.float64)
    y = np.empty(v.shape)
    for t in range(len(v)):
        for h in range(v.shape[1]):
            S[h] = w[t, h][:, None] * S[h] + np.outer(k[t, h].astype(np.float64), v[t, h])
            y[t, h] = scale * r[t, h] @ S[h]
    return y, S


def wkv7(r: F64, k: F64, v: F64, w: F64, kk: F64, a: F64, state: F64) -> tuple[F64, F64]:
    """All [tok, head, d]; kk: removed direction (of norm 1), a: how much of it is removed; state [head, key, value]."""
    S = np.array(state, np.float64)
    y = np.empty(v.shape)
    for t in range(len(v)):
        for h in range(v.shape[1]):
            transition = np.diag(w[t, h].astype(np.float64)) - np.outer(a[t, h] * kk[t, h], kk[t, h])
            S[h] = transition @ S[h] + np.outer(k[t, h].astype(np.float64), v[t, h])
            y[t, h] = r[t, h] @ S[h]
    return y, S


class Model:
    """Parts shared by both: `c` is the config, `t` the tensors by the checkpoint's names."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, F64], n_head: int, eps: float) -> None:
        self.c, self.n_head, self.eps = config, n_head, eps
        self.head_eps = 1e-5 * config.get("head_size_divisor", 8) ** 2
        if "norm_eps" in config:  # the dialect that also has head_dim
            self.head_eps = config["hidden_size"] // n_head * eps
        # values per channel are [C] in some checkpoints, [1, 1, C] in others
        self.t = {name: a.reshape(-1) if a.shape[:2] == (1, 1) else a for name, a in tensors.items()}

    def linear(self, x: F64, name: str) -> F64:
        return x @ self.t[name + ".weight"].T + self.t.get(name + ".bias", 0.0)

    def rms(self, x: F64, name: str) -> F64:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name + ".weight"]

    def norm(self, x: F64, name: str) -> F64:
        return layer_norm(x, self.t[name + ".weight"], self.t[name + ".bias"], self.eps)

    def shift(self, x: F64) -> F64:
        return token_shift(x, np.zeros(x.shape[1])) - x

    def heads(self, x: F64) -> F64:
        return x.reshape(*x.shape[:-1], self.n_head, -1)

    def head_norm(self, y: F64, name: str) -> F64:
        weight, bias = (self.heads(self.t[f"{name}.{part}"]) for part in ("weight", "bias"))
        return layer_norm(y, weight, bias, self.head_eps)

    @property
    def empty(self) -> F64:
        d = self.c["hidden_size"] // self.n_head
        return np.zeros((self.n_head, d, d))


def rwkv4_5(model: Any, ids: list[int]) -> F64:
    """RwkvForCausalLM and Rwkv5ForCausalLM (heads and a gate)."""
    c, t, heads = model.c, model.t, "Rwkv5ForCausalLM" in model.c["architectures"]
    m = Model(c, t, c["hidden_size"] // c["head_size"] if heads else 1, 1e-5)
    x = m.norm(t["rwkv.embeddings.weight"][ids], "rwkv.blocks.0.pre_ln")
    for i in range(c["num_hidden_layers"]):
        p, every = f"rwkv.blocks.{i}.", c["rescale_every"]
        scale = 0.5 ** (i // every) if every else 1.0
        a, h = p + "attention.", m.norm(x, p + "ln1")
        r, k, v = (m.linear(_mixed4(m, h, a, part), a + part) for part in ("receptance", "key", "value"))
        if heads:
            decay = np.broadcast_to(np.exp(-np.exp(t[a + "time_decay"])), m.heads(k).shape)
            y, _ = wkv6(m.heads(r), m.heads(k), m.heads(v), decay, t[a + "time_faaaa"], m.empty)
            y = m.head_norm(y, a + "ln_x").reshape(x.shape) * silu(m.linear(_mixed4(m, h, a, "gate"), a + "gate"))
        else:
            y, _ = wkv4(k, v, -np.exp(t[a + "time_decay"]), t[a + "time_first"], np.zeros((2, x.shape[1])))
            y = sigmoid(r) * y
        x = x + scale * m.linear(y, a + "output")
        f, h = p + "feed_forward.", m.norm(x, p + "ln2")
        key = np.maximum(m.linear(_mixed4(m, h, f, "key"), f + "key"), 0) ** 2
        gate = sigmoid(m.linear(_mixed4(m, h, f, "receptance"), f + "receptance"))
        x = x + scale * gate * m.linear(key, f + "value")
        x = x / 2 if every and (i + 1) % every == 0 else x
    return m.norm(x, "rwkv.ln_out") @ t.get("head.weight", t["rwkv.embeddings.weight"]).T


def _mixed4(m: Model, x: F64, p: str, part: str) -> F64:
    share = m.t[f"{p}time_mix_{part}"]
    return x * share + token_shift(x, np.zeros(x.shape[1])) * (1 - share)


def rwkv6(c: dict[str, Any], t: dict[str, F64], ids: list[int]) -> F64:
    """Rwkv6ForCausalLM. The stream, and the terms added to it, are halved after every `rescale_every` layers."""
    m = Model(c, t, c["hidden_size"] // c["head_size"], c["layer_norm_epsilon"])
    x = m.norm(t["rwkv.embeddings.weight"][ids], "rwkv.blocks.0.pre_ln")
    for i in range(c["num_hidden_layers"]):
        p, scale = f"rwkv.blocks.{i}.", 0.5 ** (i // c["rescale_every"])
        x = x + scale * _time_mix6(m, m.norm(x, p + "ln1"), p + "attention.")
        h, f = m.norm(x, p + "ln2"), p + "feed_forward."
        d = m.shift(h)
        key, gate = (h + d * m.t[f"{f}time_maa_{part}"] for part in "kr")
        key = np.maximum(m.linear(key, f + "key"), 0) ** 2
        x = x + scale * sigmoid(m.linear(gate, f + "receptance")) * m.linear(key, f + "value")
        if (i + 1) % c["rescale_every"] == 0:
            x = x / 2
    return m.norm(x, "rwkv.ln_out") @ t["head.weight"].T


def _mixed6(m: Model, x: F64, p: str, order: str) -> dict[str, F64]:
    """The inputs of all parts; `order` is the order of the low-rank maps."""
    t, d = m.t, m.shift(x)
    ranks = np.tanh((x + d * t[p + "time_maa_x"]) @ t[p + "time_maa_w1"]).reshape(len(x), 5, -1)
    return {
        part: x + d * (t[f"{p}time_maa_{part}"] + ranks[:, j] @ t[p + "time_maa_w2"][j]) for j, part in enumerate(order)
    }


def _decay6(m: Model, x: F64, p: str) -> F64:
    t = m.t
    return np.exp(-np.exp(t[p + "time_decay"] + np.tanh(x @ t[p + "time_decay_w1"]) @ t[p + "time_decay_w2"]))


def _time_mix6(m: Model, x: F64, p: str) -> F64:
    mixed = _mixed6(m, x, p, "wkvrg")
    r, k, v = (m.linear(mixed[part], p + name) for part, name in (("r", "receptance"), ("k", "key"), ("v", "value")))
    w = _decay6(m, mixed["w"], p)
    y, _ = wkv6(*(m.heads(a) for a in (r, k, v, w)), m.t[p + "time_faaaa"], m.empty)
    y = m.head_norm(y, p + "ln_x").reshape(x.shape)
    return m.linear(y * silu(m.linear(mixed["g"], p + "gate")), p + "output")


def rwkv6_qwen2(c: dict[str, Any], t: dict[str, F64], ids: list[int]) -> F64:
    """RWKV6Qwen2ForCausalLM: gated linear attention whose keys are multiplied by 1 - w."""
    m = Model(c, t, c["num_attention_heads"], c["rms_norm_eps"])
    x = t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a, h = p + "self_attn.", m.rms(x, p + "input_layernorm")
        mixed = _mixed6(m, h, a, "rkvwg")
        w = m.heads(_decay6(m, mixed["w"], a))
        r = m.heads(m.linear(mixed["r"], a + "q_proj"))
        share = c["num_attention_heads"] // c["num_key_value_heads"]
        k, v = (
            np.repeat(m.linear(mixed[part], f"{a}{part}_proj").reshape(len(x), -1, w.shape[2]), share, axis=1)
            for part in "kv"
        )
        y, _ = gla(r, k * (1 - w), v, w, w.shape[2] ** -0.5, m.empty)
        gate = sigmoid(m.linear(mixed["g"], a + "gate"))
        x = x + m.linear(y.reshape(x.shape) * gate, a + "o_proj")
        x = x + _swiglu(m, m.rms(x, p + "post_attention_layernorm"), p + "mlp.")
    return m.rms(x, "model.norm") @ t["lm_head.weight"].T


def _swiglu(m: Model, x: F64, p: str) -> F64:
    return m.linear(silu(m.linear(x, p + "gate_proj")) * m.linear(x, p + "up_proj"), p + "down_proj")


def arwkv7(c: dict[str, Any], t: dict[str, F64], ids: list[int]) -> F64:
    """RwkvHybridForCausalLM, whose low-rank matrices are [in, out]."""
    t = {name: a.T if "_lora.lora." in name and a.ndim == 2 else a for name, a in t.items()}
    m = Model(c, t, c["hidden_size"] // c["head_size"], c["rms_norm_eps"])
    x, first = t["model.embed_tokens.weight"][ids], None
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y, value = _time_mix7(m, m.rms(x, p + "input_layernorm"), p + "attn.", first)
        first = value if first is None else first
        x = x + y
        x = x + _swiglu(m, m.rms(x, p + "post_attention_layernorm"), p + "mlp.")
    return m.rms(x, "model.norm") @ t["lm_head.weight"].T


def rwkv7(c: dict[str, Any], t: dict[str, F64], ids: list[int]) -> F64:
    """RWKV7ForCausalLM."""
    m = Model(c, t, c["hidden_size"] // c["head_dim"], c["norm_eps"])
    x = m.norm(t["model.embeddings.weight"][ids], "model.layers.0.pre_norm")
    first = None
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y, value = _time_mix7(m, m.norm(x, p + "attn_norm"), p + "attn.", first)
        first = value if first is None else first
        x = x + y
        h = m.norm(x, p + "ffn_norm")
        key = np.maximum(m.linear(h + m.shift(h) * m.t[p + "ffn.x_k"], p + "ffn.key"), 0) ** 2
        x = x + m.linear(key, p + "ffn.value")
    return m.norm(x, "model.norm") @ t["lm_head.weight"].T


def _time_mix7(m: Model, x: F64, p: str, first: F64 | None) -> tuple[F64, F64]:
    """-> the layer's term, and the values before they are mixed with the first layer's."""
    t, d = m.t, m.shift(x)
    mixed = {part: x + d * t[f"{p}x_{part}"] for part in "rwkvag" if f"{p}x_{part}" in t}

    def low_rank(part: str, act: Callable[[F64], F64] = lambda a: a) -> F64:
        name = f"{p}{part}_lora.lora."
        return m.linear(act(m.linear(mixed[part], name + "0")), name + "2")

    r, k, v = (m.linear(mixed[part], f"{p}{part}_proj") for part in "rkv")
    own = v
    w = np.exp(-np.exp(-0.5) * sigmoid(low_rank("w", np.tanh)))
    a, gate = sigmoid(low_rank("a")), low_rank("g", sigmoid) if "g" in mixed else 1.0
    if first is not None:
        v = v + (first - v) * sigmoid(low_rank("v"))
    kk = m.heads(k * t[p + "k_k"])
    kk = kk / np.maximum(np.sqrt((kk**2).sum(-1, keepdims=True)), 1e-12)
    k = k * (1 + (a - 1) * t[p + "k_a"])
    r, k, v, w, a = (m.heads(part) for part in (r, k, v, w, a))
    y, _ = wkv7(r, k, v, w, kk, a, m.empty)
    bonus = (r * k * t[p + "r_k"].reshape(m.n_head, -1)).sum(-1, keepdims=True)
    y = m.head_norm(y, p + "g_norm") if p + "g_norm.weight" in t else y
    y = (y + bonus * v).reshape(x.shape)
    return m.linear(y * gate, p + "o_proj"), own


def rwkv7a(model: Any, ids: list[int]) -> F64:
    """RWKV-7a, and RWKV-7b with attention, from the demos of RWKV-LM, in whose names matrices are [in, out]."""
    c, t = model.c, {name: a.T if "_lora.lora." in name and a.ndim == 2 else a for name, a in model.t.items()}
    m = Model(c, t, c["hidden_size"] // c["head_size"], 1e-5)
    x = embedded = m.norm(t["model.embeddings.weight"][ids], "model.layers.0.pre_norm")
    first = None

    def table(name: str) -> F64:
        return t[name + ".weight"][ids] + embedded @ t[name + "_x.weight"].T

    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y, value = _time_mix7(m, m.norm(x, p + "attn_norm"), p + "attn.", first)
        first = value if first is None else first
        x = x + y + (_deep_attention(m, x, p + "qkv.", table) if p + "qkv.qq.weight" in t else 0)
        h, f = m.norm(x, p + "ffn_norm"), p + "ffn."
        key = np.maximum(m.linear(h + m.shift(h) * m.t[f + "x_k"], f + "key"), 0) ** 2
        low = h @ t[f + "s1"]
        matrices = table(f + "s_emb").reshape(len(ids), low.shape[1], -1)
        key = key * (np.einsum("ti,tij->tj", low, matrices) @ t[f + "s2"] + m.t[f + "s0"])
        x = x + m.linear(key, f + "value")
    return m.norm(x, "model.norm") @ t["lm_head.weight"].T


def _deep_attention(m: Model, x: F64, p: str, table: Callable[[str], F64]) -> F64:
    t = m.t
    parts = {
        "q": m.linear(x, p + "qq"),
        "k": x @ t[p + "k1"] @ t[p + "k2"] * table(p + "k_emb"),
        "v": np.tanh(x @ t[p + "v1"] @ t[p + "v2"]) * table(p + "v_emb"),
    }
    q, k, v = (m.norm(a + m.shift(a) * t[f"{p}x_{part}"], f"{p}ln{part}") for part, a in parts.items())
    scores = np.where(np.tri(len(x), dtype=bool), 64 * np.tanh(q @ k.T / 1024), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
