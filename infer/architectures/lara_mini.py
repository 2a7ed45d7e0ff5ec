"""LaraMini: gated delta rule, attention over a window and over all tokens, experts and a shared one. Of Translated.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.lara_mini import LaraMiniHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part
from .qwen3next import delta_net
from .rope import rope_of


class LaraMini(Family):
    """LaraMini. Only layers with a window have positions."""

    name = "lara-mini"
    hparams = LaraMiniHparams

    def block(self, h: LaraMiniHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            rope, window = (rope_of(h, w, h.d_head, NEOX), h.window) if h.local[i] else (None, 0)
            yield "attn_norm.weight", Attention(
                i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=window, norm=HeadNorm(h.eps)
            )  # fmt: skip
        else:
            yield "attn_norm.weight", delta_net(h, i, w, h.eps, grouped=True)
        router = Router(h.n_expert, h.n_expert_used, h.weights_norm)
        shared = GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp")
        yield "ffn_norm.weight", Sum(MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router), shared)
