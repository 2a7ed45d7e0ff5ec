"""Experts as DeepSeek has them: the keys of families that do, and the layer."""

from dataclasses import dataclass
from typing import Any

from ..layers.base import Layer, Sum
from ..layers.feed_forward import Clamp, GatedFeedForward, MixtureOfExperts
from ..loading.hparams import Hparams, key
from ..loading.weights import Weights

SOFTMAX, SIGMOID = 1, 2  # of expert_gating_func


@dataclass(frozen=True)
class RoutedHparams(Hparams):
    """n_dense: first layers without experts; n_shared experts, as wide together as so many, are for every token."""

    n_dense: int = key("leading_dense_block_count", 0)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_shared: int = key("expert_shared_count", 0)
    weights_norm: bool = key("expert_weights_norm", True)
    weights_scale: float = key("expert_weights_scale", 1.0)
    gating: int = key("expert_gating_func", SOFTMAX)
    n_expert_group: int = key("expert_group_count", 1)
    n_expert_group_used: int = key("expert_group_used_count", 1)


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
