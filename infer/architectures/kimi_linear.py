"""Kimi Linear: gated delta rule by channels, latent attention without positions, experts. arXiv:2510.26692"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..layers import GatedFeedForward, KimiDelta, LatentAttention, Layer, MixtureOfExperts, Rope, Sum
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part


@dataclass(frozen=True)
class KimiLinearHparams(AttentionHparams):
    """A layer without heads of keys has the delta rule; n_rot values of a key are for all heads."""

    n_ff: int = key("feed_forward_length")
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_kda: int = key("kda.head_dim", minimum=1)
    n_kda: int = key("hybrid.kda.head_count", 0)  # 0: as many as of attention
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
    gating: int = key("expert_gating_func", 2)
    n_expert_group: int = key("expert_group_count", 1)
    n_expert_group_used: int = key("expert_group_used_count", 1)


SIGMOID = 2  # of expert_gating_func


class KimiLinear(Family):
    """Kimi Linear."""

    name = "kimi-linear"
    hparams = KimiLinearHparams

    def block(self, h: KimiLinearHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", self.attention(h, i, w) if h.n_head_kv[i] else self.delta(h, i, w)
        yield "ffn_norm.weight", self.feed_forward(h, i, w)

    def delta(self, h: Any, i: int, w: Weights) -> Layer:
        """A layer with the delta rule."""
        return KimiDelta(i, h.n_embd, h.n_kda or h.n_head, h.d_kda, h.d_conv, h.eps)

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        """A layer with latent attention."""
        return latent_attention(h, i, w)

    def feed_forward(self, h: KimiLinearHparams, i: int, w: Weights) -> Layer:
        """Dense on the first layers, then experts beside shared ones."""
        if i < h.n_dense:
            return GatedFeedForward(i, h.n_embd, h.n_ff)
        if h.gating != SIGMOID:
            raise w.wrong("expert_gating_func", h.gating, f"{SIGMOID}, the sigmoid")
        experts = MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=True,
            scale=h.weights_scale or 1.0, n_group=max(1, h.n_expert_group), n_group_used=h.n_expert_group_used,
        )  # fmt: skip
        if not h.n_shared:
            return experts
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp"))


def latent_attention(
    h: KimiLinearHparams, i: int, w: Weights, rope: Rope | None = None, *, gated: bool = False
) -> LatentAttention:
    """A layer by the keys that families with latent attention share."""
    if not 0 <= h.n_rot < h.d_key:
        raise w.wrong("rope.dimension_count", h.n_rot, f"less than attention.key_length_mla = {h.d_key}")
    return LatentAttention(
        i, h.n_embd, h.n_head, h.d_key - h.n_rot, h.n_rot, h.d_value, h.rank, h.latent_eps or h.eps,
        rope if h.n_rot else None, h.q_rank, gated,
    )  # fmt: skip
