"""Experts as in DeepSeek: makes their layers from the keys of families that have them."""

from collections.abc import Mapping
from typing import Any

from hybrid.quant.ggml.families.experts import SIGMOID, SOFTMAX, RoutedHparams

from ..kernels.rows.moe import Scoring
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import ExpertGroups, Router
from ..loading.weights import Weights


def groups_of(n: int, n_used: int, by_two: bool = True) -> ExpertGroups | None:
    """The groups of experts; None if n is 0 or 1."""
    return ExpertGroups(n, n_used, by_two) if n > 1 else None


def router_of(h: Any, **how: Any) -> Router:
    """The router by a family's keys. how: the other fields of Router."""
    return Router(h.n_expert, h.n_expert_used, h.weights_norm, scale=h.weights_scale or 1.0, **how)


def routed(
    h: RoutedHparams,
    i: int,
    w: Weights,
    shared: Mapping[str, Any] | None = None,
    *,
    by_two: bool = True,
    n_ff_shared: int = 0,
    **more: Any,
) -> Layer:
    """The experts of layer i, plus the shared ones if there are any.

    shared, more  fields of the shared layer, and of MixtureOfExperts
    by_two        see ExpertGroups
    n_ff_shared   width of the shared layer; 0: n_shared times the width of an expert
    """
    if h.gating not in (SOFTMAX, SIGMOID):
        raise h.wrong(w.gguf, "gating", f"{SOFTMAX}, softmax, or {SIGMOID}, the sigmoid")
    scoring = Scoring.SIGMOID if h.gating == SIGMOID else Scoring.SOFTMAX
    router = router_of(h, scoring=scoring, groups=groups_of(h.n_expert_group, h.n_expert_group_used, by_two))
    more.setdefault("fused", f"blk.{i}.ffn_gate_up_exps.weight" in w)
    experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router, **more)
    n_ff_shared = n_ff_shared or h.n_shared * h.n_ff_expert
    if not n_ff_shared:
        return experts
    return Sum(experts, GatedFeedForward(i, h.n_embd, n_ff_shared, "_shexp", **(shared or {})))
