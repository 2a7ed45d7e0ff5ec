"""Nemotron-H: every layer is Mamba-2, attention without positions, or a feed-forward part. arXiv:2504.03624"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.feed_forward import FeedForward, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Mamba2Hparams, Part


@dataclass(frozen=True)
class NemotronHHparams(AttentionHparams, Mamba2Hparams):
    """A layer without heads of keys and without feed-forward width is Mamba-2, one with both guesses tokens ahead."""

    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True)  # 0 marks a layer without feed-forward part
    d_head: int = key("attention.key_length", 0)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)
    weights_scale: float = key("expert_weights_scale", 1.0)
    n_expert_group: int = key("expert_group_count", 1)
    n_expert_group_used: int = key("expert_group_used_count", 1)
    n_latent: int = key("moe_latent_size", 0)


class NemotronH(Family):
    """Nemotron-H, dense: squared ReLU, no gates."""

    name = "nemotron_h"
    hparams = NemotronHHparams
    has_heads = True

    def block(self, h: NemotronHHparams, i: int, w: Weights) -> Iterator[Part]:
        norm = "attn_norm.weight"
        if h.n_head_kv[i]:
            yield norm, Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], h.head_size(w, h.d_head))
            if h.n_ff[i]:
                yield "post_attention_norm.weight", self.feed_forward(h, i, w)
        else:
            yield norm, self.feed_forward(h, i, w) if h.n_ff[i] else h.mamba2(i)

    def feed_forward(self, h: NemotronHHparams, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return FeedForward(i, h.n_embd, h.n_ff[i])
        experts = MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert or h.n_ff[i], h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=True,
            scale=h.weights_scale or 1.0, gated=False, n_group=max(1, h.n_expert_group),
            n_group_used=h.n_expert_group_used, n_latent=h.n_latent,
        )  # fmt: skip
        return Sum(experts, FeedForward(i, h.n_embd, h.n_ff_shared, "_shexp"))


class NemotronHMoe(NemotronH):
    """With experts beside a shared one where there would be a feed-forward part, or beside such parts."""

    name = "nemotron_h_moe"
