"""Nemotron-H: every layer is Mamba-2, attention without positions, or a feed-forward part. arXiv:2504.03624"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.nemotron_h import NemotronHHparams

from ..kernels.rows.moe import Scoring
from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.feed_forward import FeedForward, LatentExperts, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size, mamba2
from .experts import groups_of


class NemotronH(Family):
    """Nemotron-H, dense: squared ReLU, no gates."""

    name = "nemotron_h"
    hparams = NemotronHHparams
    has_heads = True

    def block(self, h: NemotronHHparams, i: int, w: Weights) -> Iterator[Part]:
        norm = "attn_norm.weight"
        if h.n_head_kv[i]:
            yield norm, Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], head_size(h, w, h.d_head))
            if h.n_ff[i]:
                yield "post_attention_norm.weight", self.feed_forward(h, i, w)
        else:
            yield norm, self.feed_forward(h, i, w) if h.n_ff[i] else mamba2(h, i)

    def feed_forward(self, h: NemotronHHparams, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return FeedForward(i, h.n_embd, h.n_ff[i])
        groups = groups_of(h.n_expert_group, h.n_expert_group_used)
        scale, scoring = h.weights_scale or 1.0, Scoring.SIGMOID
        router = Router(h.n_expert, h.n_expert_used[i], h.weights_norm, scoring, scale=scale, groups=groups)
        latent = LatentExperts(h.n_latent) if h.n_latent else None
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert[i] or h.n_ff[i], router, gated=False, latent=latent)
        return Sum(experts, FeedForward(i, h.n_embd, h.n_ff_shared, "_shexp"))


class NemotronHMoe(NemotronH):
    """Nemotron-H with experts and a shared one, in place of some or all dense feed-forward parts."""

    name = "nemotron_h_moe"
