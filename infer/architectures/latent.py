"""Families with latent attention, and DeepSeek's experts: the keys that they share, and the layers that follow."""

from dataclasses import dataclass

from ..layers import GatedFeedForward, LatentAttention, Layer, MixtureOfExperts, Rope, Sum
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams

SOFTMAX, SIGMOID = 1, 2  # of expert_gating_func


@dataclass(frozen=True)
class LatentHparams(AttentionHparams):
    """n_rot values of a key are for all heads."""

    n_ff: int = key("feed_forward_length")
    rank: int = key("attention.kv_lora_rank", minimum=1)
    q_rank: int = key("attention.q_lora_rank", 0)
    d_key: int = key("attention.key_length_mla", minimum=1)
    d_value: int = key("attention.value_length_mla", minimum=1)
    n_rot: int = key("rope.dimension_count")
    latent_eps: float = key("hybrid.attention.latent_norm_rms_epsilon", 0.0)  # 0: eps
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


def feed_forward(h: LatentHparams, i: int, w: Weights, group_best: int = 2) -> Layer:
    """Dense on the first layers, then experts beside shared ones. group_best: see MixtureOfExperts."""
    if i < h.n_dense:
        return GatedFeedForward(i, h.n_embd, h.n_ff)
    if h.gating not in (SOFTMAX, SIGMOID):
        raise w.wrong("expert_gating_func", h.gating, f"{SOFTMAX}, softmax, or {SIGMOID}, the sigmoid")
    experts = MixtureOfExperts(
        i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=h.gating == SIGMOID,
        scale=h.weights_scale or 1.0, n_group=max(1, h.n_expert_group), n_group_used=h.n_expert_group_used,
        group_best=group_best,
    )  # fmt: skip
    if not h.n_shared:
        return experts
    return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp"))


def latent_attention(
    h: LatentHparams, i: int, w: Weights, rope: Rope | None = None, *, gated: bool = False, scale: float = 0.0
) -> LatentAttention:
    """Layer i; scale: of the scores, 0: as usual."""
    if not 0 <= h.n_rot < h.d_key:
        raise w.wrong("rope.dimension_count", h.n_rot, f"less than attention.key_length_mla = {h.d_key}")
    return LatentAttention(
        i, h.n_embd, h.n_head, h.d_key - h.n_rot, h.n_rot, h.d_value, h.rank, h.latent_eps or h.eps,
        rope if h.n_rot else None, h.q_rank, gated, scale,
    )  # fmt: skip
