"""Plain transformers in float64: one model, and the differences that a family may have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from reference.attention import attention, rope
from reference.experts import choose, mixture, softmax, sparse_mixer
from reference.gemma4 import gelu
from reference.recurrent import F64, sigmoid, silu
from reference.rope_scaling import scaling

if TYPE_CHECKING:
    from reference.families import Reference


@dataclass(frozen=True)
class Switches:
    """A family's differences.

    before, behind  names of the norms around both parts; "": none. One norm before both: they read the same rows
    normed          queries and keys: "heads" each head, "all" all heads together, "turned" each head after RoPE
    neox            rotates pairs of a head's halves, otherwise pairs of neighbours
    period          without layer_types: the last of every `period` layers has no window; 0: no layer has a window
    nope            in a model with windows only layers with a window have RoPE
    head, part, theta, logit_scale  head size (0: width / heads), its rotated share, RoPE's base, factor of the
                    logits: defaults if the config has none
    shared          the checkpoint's name of the shared expert
    plus            added to the weights of norms
    window          without layer_types: all layers have a window
    apart           layers with a window have RoPE of their own, which is not scaled
    scaled          the embedding is multiplied with the root of its width, and gates use GELU
    absent          defaults of fields that configs lack
    """

    before: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    behind: tuple[str, str] = ("", "")
    normed: str = ""
    norm_names: tuple[str, str] = ("q_norm", "k_norm")
    neox: bool = True
    period: int = 0
    nope: bool = False
    head: int = 0
    part: float = 1.0
    theta: float = 1e4
    shared: str = "shared_experts"
    logit_scale: float = 1.0
    plus: float = 0.0
    window: bool = False
    apart: bool = False
    scaled: bool = False
    absent: Mapping[str, Any] = field(default_factory=dict)


POST = ("post_attention_layernorm", "post_feedforward_layernorm")


def plain(r: "Reference", ids: list[int], s: Switches) -> F64:
    """f64 [tok, vocabulary]"""
    c = r.c = {**s.absent, **r.c}
    r.eps = next(c[key] for key in ("rms_norm_eps", "layer_norm_eps", "norm_eps") if key in c)
    x = r.t["model.embed_tokens.weight"][ids] * (c["hidden_size"] ** 0.5 if s.scaled else 1.0)
    parts = (_attend, _feed_forward)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if len(s.before) == 1:
            h = _norm(r, s, x, p + s.before[0])
            x = x + _attend(r, s, h, p, i) + _feed_forward(r, s, h, p, i)
            continue
        for n, part in enumerate(parts):
            y = part(r, s, _norm(r, s, x, p + s.before[n]) if s.before else x, p, i)
            x = x + (_norm(r, s, y, p + s.behind[n]) if s.behind[n] else y)
    y = r.head(_norm(r, s, x, "model.norm"), "model.embed_tokens.weight") * c.get("logit_scale", s.logit_scale)
    return y + r.t.get("lm_head.bias", 0.0)


def _norm(r: "Reference", s: Switches, x: F64, name: str) -> F64:
    """Layer norm if the config has an epsilon for it or the norm a bias; otherwise RMS norm."""
    if "layer_norm_eps" not in r.c and name + ".bias" not in r.t:
        return r.norm(x, name, s.plus)
    away = x - x.mean(-1, keepdims=True)
    y = away / np.sqrt((away * away).mean(-1, keepdims=True) + r.eps) * (r.t[name + ".weight"] + s.plus)
    return y + r.t.get(name + ".bias", 0.0)


def _attend(r: "Reference", s: Switches, h: F64, p: str, i: int) -> F64:
    c, p = r.c, p + "self_attn."
    d = c.get("head_dim") or s.head or c["hidden_size"] // c["num_attention_heads"]
    q, k, v = (r.linear(h, f"{p}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
    window = _window(c, s, i)
    normed = [p + name for name in s.norm_names]
    if s.normed == "all":
        q, k = (r.norm(x.reshape(len(h), -1), name).reshape(x.shape) for x, name in zip((q, k), normed, strict=True))
    elif s.normed == "heads" and normed[0] + ".weight" in r.t:
        q, k = (r.norm(x, name) for x, name in zip((q, k), normed, strict=True))
    if window or not s.nope or not c.get("sliding_window"):
        turn = _turn(r, s, d, bool(window), len(h))
        q, k = turn(q), turn(k)
    if s.normed == "turned":
        q, k = (r.norm(x, name) for x, name in zip((q, k), normed, strict=True))
    y = attention(q, k, v, np.arange(len(h)), d**-0.5, window)
    if p + "g_proj.weight" in r.t:
        y *= np.logaddexp(0, r.linear(h, p + "g_proj")).reshape(*y.shape[:2], -1)
    y = y.reshape(len(h), -1)
    if p + "gate_proj.weight" in r.t:
        y = y * sigmoid(r.linear(h, p + "gate_proj"))
    return r.linear(y, p + "o_proj")


def _window(c: dict, s: Switches, i: int) -> int:
    """The number of tokens that a token sees in layer i; 0: all."""
    size = c.get("sliding_window") or 0
    if c["architectures"][0] in ("PhiMoEForCausalLM", "MixtralForCausalLM"):
        return size
    if "layer_types" in c:
        return size if c["layer_types"][i] == "sliding_attention" else 0
    if "use_sliding_window" in c:
        return size if c["use_sliding_window"] and i % 2 == 0 and i < c["max_window_layers"] else 0
    if "max_window_layers" in c:
        return size if i >= c["max_window_layers"] else 0
    period = c.get("sliding_window_pattern", s.period)
    return size if s.window or (period and (i + 1) % period) else 0


def _turn(r: "Reference", s: Switches, d: int, local: bool, n_tok: int) -> Callable[[F64], F64]:
    c = r.c
    rope_of = c.get("rope_parameters") or c.get("rope_scaling") or {}
    kinds = rope_of if "full_attention" in rope_of else {"full_attention": rope_of}
    apart = local and s.apart
    one = kinds.get("sliding_attention", {}) if apart else kinds["full_attention"]
    if rope_of.get("alpha"):
        theta = c["rope_theta"] * rope_of["alpha"] ** (d / (d - 2))
        return lambda x: rope(x, np.arange(len(x)), d, theta, neox=True)
    theta = one.get("rope_theta") or (s.theta if apart else c.get("rope_theta") or s.theta)
    n_rot = c.get("rotary_dim") or int(
        d * (one.get("partial_rotary_factor") or c.get("partial_rotary_factor") or s.part)
    )
    factors, magnitude = (None, 1.0) if apart else scaling(c, n_rot, theta, n_tok)
    return lambda x: rope(x, np.arange(len(x)), n_rot, theta, 1.0, factors, s.neox, magnitude)


def _feed_forward(r: "Reference", s: Switches, h: F64, p: str, i: int) -> F64:
    c, m = r.c, p + "mlp."
    if p + "block_sparse_moe.gate.weight" in r.t:
        return _mix(r, h, p + "block_sparse_moe.")
    if m + "act_fn.beta" in r.t:
        alphas = (np.logaddexp(0, r.t[f"{m}act_fn.alpha_{sign}"]) for sign in "pn")
        positive, negative, beta, eps = *alphas, r.t[m + "act_fn.beta"], r.t[m + "act_fn.eps"]
        return r.linear(xielu(r.linear(h, m + "up_proj"), positive, beta + negative, beta, eps), m + "down_proj")
    if m + "gate_up_proj.weight" in r.t:
        gate, up = np.split(r.linear(h, m + "gate_up_proj"), 2, axis=1)
        return r.linear(silu(gate) * up, m + "down_proj")
    if m + "gate_proj.weight" not in r.t and m + "up_proj.weight" in r.t:
        return r.linear(np.maximum(r.linear(h, m + "up_proj"), 0) ** 2, m + "down_proj")
    if s.scaled:
        return r.linear(gelu(r.linear(h, m + "gate_proj")) * r.linear(h, m + "up_proj"), m + "down_proj")
    router = m + ("gate.wg" if m + "gate.wg.weight" in r.t else "gate")
    if router + ".weight" not in r.t:
        return r.gated(h, m)
    ernie = c["architectures"] == ["Ernie4_5_MoeForCausalLM"]
    scores, bias = softmax(r.linear(h, router)), 0.0
    if ernie:
        bias = r.t[m + "moe_statics.e_score_correction_bias"][0]
    for name in ("gate", "experts"):
        if f"{m}{name}.e_score_correction_bias" in r.t:
            scores, bias = sigmoid(r.linear(h, m + "gate")), r.t[f"{m}{name}.e_score_correction_bias"]
    usual = c["architectures"][0] in ("Ernie4_5_MoeForCausalLM", "Glm4MoeForCausalLM", "HunYuanMoEV1ForCausalLM")
    used = c["num_experts_per_tok"] if "num_experts_per_tok" in c else c["moe_k" if ernie else "moe_topk"]
    scale = c.get("routed_scaling_factor", c.get("moe_routed_scaling_factor", 1.0))
    y = scale * mixture(
        h,
        scores,
        bias,
        used[0] if isinstance(used, list) else used,
        lambda one, e: r.gated(one, f"{m}experts.{e}."),
        c.get("norm_topk_prob", usual),
        (c.get("n_group", 1), c.get("topk_group", 1)),
    )
    if f"{m}{s.shared}.up_proj.weight" not in r.t:
        return y
    shared = r.gated(h, f"{m}{s.shared}.")
    weight = m + "shared_expert_gate"
    return y + (sigmoid(r.linear(h, weight)) * shared if weight + ".weight" in r.t else shared)


def xielu(x: F64, positive: Any, negative: Any, linear: Any, least: Any) -> F64:
    """arXiv:2411.13010; the factors are the sums in its formula."""
    return np.where(x > 0, positive * x * x, (np.expm1(np.minimum(x, least)) - x) * negative) + linear * x


def _mix(r: "Reference", h: F64, m: str) -> F64:
    """The experts of Phi-MoE, MiniMax-M2 and Mixtral."""
    logits, rows = r.linear(h, m + "gate"), []
    for one, scores in zip(h, logits, strict=True):
        if r.c["architectures"] == ["PhiMoEForCausalLM"]:
            mixed = sparse_mixer(scores, 2, r.c.get("router_jitter_noise", 0.01))
        elif m + "e_score_correction_bias" in r.t:
            chances = sigmoid(scores)
            chosen = choose(chances + r.t[m + "e_score_correction_bias"], r.c["num_experts_per_tok"])
            mixed = {e: chances[e] / chances[chosen].sum() for e in chosen}
        else:
            best = np.argsort(-scores, kind="stable")[: r.c["num_experts_per_tok"]]
            mixed = dict(zip(best.tolist(), softmax(scores[best]), strict=True))
        gates = ((f"{m}experts.{e}.w", weight) for e, weight in mixed.items())
        rows.append(
            sum(
                weight * r.linear(silu(r.linear(one, w + "1")) * r.linear(one, w + "3"), w + "2") for w, weight in gates
            )
        )
    return np.stack(rows)
