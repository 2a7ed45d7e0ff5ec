"""gpt-oss: attention with a sink in every head, over a window on every other layer; experts. arXiv:2508.10925"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.gpt_oss import GptOssHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import Clamp, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class GptOss(Family):
    """gpt-oss."""

    name = "gpt-oss"
    hparams = GptOssHparams

    def block(self, h: GptOssHparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, d_head, NEOX),
            window=h.window if h.local[i] else 0, sinks=True,
        )  # fmt: skip
        router, clamp = Router(h.n_expert, h.n_expert_used, renormalize=True), Clamp(h.limit, h.alpha, 1.0)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router, biased=True, clamp=clamp)
        yield "post_attention_norm.weight", experts
