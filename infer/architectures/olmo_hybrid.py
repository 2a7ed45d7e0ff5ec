"""OLMo Hybrid: the gated delta rule, and on every fourth layer attention with norms after the parts. Of Ai2.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.olmo_hybrid import OlmoHybridHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm, NormWeights
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .qwen3next import delta_net


class OlmoHybrid(Family):
    """OLMo Hybrid."""

    name = "olmo-hybrid"
    hparams = OlmoHybridHparams

    def block(self, h: OlmoHybridHparams, i: int, w: Weights) -> Iterator[Part]:
        feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff)
        if not h.n_head_kv[i]:
            eps = h.gated_eps or h.eps
            yield "attn_norm.weight", delta_net(h, i, w, eps, grouped=True, beta_scale=h.beta_scale)
            yield "ffn_norm.weight", feed_forward
            return
        attention = Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], head_size(h, w),
            Rope(h.n_rot, h.freq_base, NEOX) if h.n_rot else None, norm=HeadNorm(h.eps, NormWeights.ALL_HEADS),
        )  # fmt: skip
        yield "", PostNorm(attention, f"blk.{i}.post_attention_norm.weight", h.n_embd, h.eps)
        yield "", PostNorm(feed_forward, f"blk.{i}.post_ffw_norm.weight", h.n_embd, h.eps)
