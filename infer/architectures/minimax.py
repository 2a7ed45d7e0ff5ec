"""MiniMax-01: lightning attention, softmax attention on every eighth layer, experts. arXiv:2501.08313"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.minimax import MiniMaxHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import KeptNorm
from ..layers.feed_forward import MixtureOfExperts
from ..layers.lightning import LightningAttention
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class MiniMax(Family):
    """MiniMax-Text-01 and MiniMax-M1."""

    name = "minimax-01"
    hparams = MiniMaxHparams

    def block(self, h: MiniMaxHparams, i: int, w: Weights) -> Iterator[Part]:
        if not h.residual_scale:
            raise h.wrong(w.gguf, "residual_scale", "a positive number")
        d_head, scale = head_size(h, w, h.d_head), h.residual_scale
        # tensors tell the kind of a layer: llama.cpp has two keys for it, and its converter writes neither
        if f"blk.{i}.attn_q.weight" in w:
            attention = Attention(
                i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, h.n_rot or d_head, NEOX),
                window=h.windows[i],
            )  # fmt: skip
            yield "attn_norm.weight", KeptNorm(attention, h.kept_attention or scale, h.share_attention or 1.0)
        else:
            lightning = LightningAttention(i, h.n_embd, h.n_head, d_head, h.n_layer, h.lightning_eps or h.eps)
            yield "attn_norm.weight", KeptNorm(lightning, h.kept_lightning or scale, h.share_lightning or 1.0)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used, renormalize=True))
        yield "ffn_norm.weight", KeptNorm(experts, h.kept_feed_forward or scale, h.share_feed_forward or 1.0)
