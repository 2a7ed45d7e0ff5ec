"""ZAYA1: attention on convolved queries and keys, one expert or none for a token. arXiv:2511.17127

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.zaya import ZayaHparams

from ..kernels.attention.rope import NEOX
from ..layers.affine_residual import AffineResidual
from ..layers.attention import Rope
from ..layers.carried_router import CarriedRouterExperts
from ..layers.convolved_attention import ConvolvedAttention
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part
from .rope import rope_of


class Zaya(Family):
    """ZAYA1."""

    name = "zaya"
    hparams = ZayaHparams
    embedding_scale = "token_embd_scale"

    def block(self, h: ZayaHparams, i: int, w: Weights) -> Iterator[Part]:
        local, p = h.window > 0 and h.local[i], f"blk.{i}."
        rope = rope_of(h, w, h.n_rot, NEOX)
        if local:
            rope = Rope(h.n_rot_local or h.n_rot, h.freq_base_local or h.freq_base, NEOX)
        attention = ConvolvedAttention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=h.window if local else 0,
            taps=(h.taps_channel, h.taps_head),
        )  # fmt: skip
        router = Router(h.n_expert, 1, n_idle=1)
        experts = CarriedRouterExperts(i, h.n_embd, h.n_ff, router, n_router=h.n_router, eps=h.eps)
        yield "attn_norm.weight", AffineResidual(attention, p + "attn", h.n_embd)
        yield "ffn_norm.weight", AffineResidual(experts, p + "ffn", h.n_embd)
