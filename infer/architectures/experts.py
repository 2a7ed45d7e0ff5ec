"""Experts as DeepSeek has them: the keys of families that do, and the layer."""

from collections.abc import Mapping
from typing import Any

from hybrid.quant.ggml.families.experts import SIGMOID, SOFTMAX, RoutedHparams

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.weights import Weights


def routed(h: RoutedHparams, i: int, w: Weights, shared: Mapping[str, Any] | None = None, **more: Any) -> Layer:
    """The experts of layer i, beside the shared ones if there are any. shared, more: fields of both layers."""
    if h.gating not in (SOFTMAX, SIGMOID):
        raise h.wrong(w.gguf, "gating", f"{SOFTMAX}, softmax, or {SIGMOID}, the sigmoid")
    experts = MixtureOfExperts(
        i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=h.gating == SIGMOID,
        scale=h.weights_scale or 1.0, n_group=max(1, h.n_expert_group), n_group_used=h.n_expert_group_used,
        **more,
    )  # fmt: skip
    if not h.n_shared:
        return experts
    return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp", **(shared or {})))
