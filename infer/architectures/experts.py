"""Experts as DeepSeek has them: the keys of families that do, and the layer."""

from typing import Any

from hybrid.quant.ggml.families.experts import SIGMOID, SOFTMAX, RoutedHparams

from ..layers.base import Layer, Sum
from ..layers.feed_forward import Clamp, GatedFeedForward, MixtureOfExperts
from ..loading.weights import Weights


def routed(
    h: RoutedHparams, i: int, w: Weights, group_best: int = 2, clamp: Clamp | None = None,
    clamp_shared: Clamp | None = None,
) -> Layer:  # fmt: skip
    """The experts of layer i, beside the shared ones if there are any. group_best, clamp: see MixtureOfExperts."""
    experts = mixture(h, i, w, clamp=clamp, group_best=group_best)
    if not h.n_shared:
        return experts
    return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp", clamp=clamp_shared))


def mixture(h: RoutedHparams, i: int, w: Weights, **more: Any) -> MixtureOfExperts:
    """The experts of layer i without the shared ones; `more`: fields of MixtureOfExperts."""
    if h.gating not in (SOFTMAX, SIGMOID):
        raise w.wrong("expert_gating_func", h.gating, f"{SOFTMAX}, softmax, or {SIGMOID}, the sigmoid")
    return MixtureOfExperts(
        i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=h.gating == SIGMOID,
        scale=h.weights_scale or 1.0, n_group=max(1, h.n_expert_group), n_group_used=h.n_expert_group_used,
        **more,
    )  # fmt: skip
