"""Latent attention and feed-forward layers, from the keys that families with latent attention share."""

from typing import Any

from hybrid.quant.ggml.families.latent import LatentHparams

from ..layers.attention import Rope
from ..layers.base import Gate, Layer
from ..layers.feed_forward import Clamp, GatedFeedForward
from ..layers.latent_attention import LatentAttention
from ..loading.weights import Weights
from .experts import routed


def feed_forward(h: LatentHparams, i: int, w: Weights, by_two: bool = True) -> Layer:
    """Feed-forward part of layer i: dense on the first n_dense layers, then experts. by_two: see ExpertGroups."""
    return GatedFeedForward(i, h.n_embd, h.n_ff) if i < h.n_dense else routed(h, i, w, by_two=by_two)


def clamped_feed_forward(h: Any, i: int, w: Weights) -> Layer:
    """The same with limits of the gates' inputs: of experts, and of dense layers and the shared expert."""
    clamp, shared = (Clamp(limit[i]) if limit[i] else None for limit in (h.limit, h.limit_shared))
    if i < h.n_dense or f"blk.{i}.ffn_gate.weight" in w:  # heads that guess tokens ahead may be dense
        return GatedFeedForward(i, h.n_embd, h.n_ff, clamp=shared)
    return routed(h, i, w, {"clamp": shared}, clamp=clamp)


def latent_attention(
    h: LatentHparams,
    i: int,
    w: Weights,
    rope: Rope | None = None,
    *,
    gate: Gate | None = None,
    scale: float = 0.0,
    gate_factor: float = 0.0,
) -> LatentAttention:
    """Latent attention of layer i. scale: of the scores; 0: the default. gate_factor: see LatentAttention."""
    if not 0 <= h.n_rot < h.d_key:
        raise h.wrong(w.gguf, "n_rot", f"less than attention.key_length_mla = {h.d_key}")
    return LatentAttention(
        i, h.n_embd, h.n_head, h.d_key - h.n_rot, h.n_rot, h.d_value, h.rank, h.latent_eps or h.eps,
        rope if h.n_rot else None, h.q_rank, gate, scale, gate_factor=gate_factor,
    )  # fmt: skip
