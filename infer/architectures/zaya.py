"""ZAYA1: attention on convolved queries and keys, one expert or none for a token. arXiv:2511.17127

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.affine_residual import AffineResidual
from ..layers.attention import Rope
from ..layers.carried_router import CarriedRouterExperts
from ..layers.convolved_attention import ConvolvedAttention
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class ZayaHparams(RopeHparams, AttentionHparams):
    """`local` layers see `window` tokens, and have rotary positions of their own."""

    n_ff: int = key("feed_forward_length", minimum=1)  # of an expert
    d_head: int = key("attention.key_length", minimum=1)
    taps_channel: int = key("ssm.conv_kernel", minimum=1)
    taps_head: int = key("attention.conv_kernel", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 1, pattern=True)
    freq_base: float = key("rope.freq_base", minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 0.0)  # 0: the same
    n_rot: int = key("rope.dimension_count", minimum=2)
    n_rot_local: int = key("rope.dimension_count_swa", 0)
    n_expert: int = key("expert_count", minimum=1)
    n_router: int = key("expert_router_length", minimum=1)


class Zaya(Family):
    """ZAYA1."""

    name = "zaya"
    hparams = ZayaHparams
    embedding_scale = "token_embd_scale"

    def block(self, h: ZayaHparams, i: int, w: Weights) -> Iterator[Part]:
        local, p = h.window > 0 and h.local[i], f"blk.{i}."
        rope = h.rope(w, h.n_rot, NEOX)
        if local:
            rope = Rope(h.n_rot_local or h.n_rot, h.freq_base_local or h.freq_base, NEOX)
        attention = ConvolvedAttention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=h.window if local else 0,
            taps=(h.taps_channel, h.taps_head),
        )  # fmt: skip
        experts = CarriedRouterExperts(
            i, h.n_embd, h.n_ff, h.n_expert, 1, n_router=h.n_router, eps=h.eps,
        )  # fmt: skip
        yield "attn_norm.weight", AffineResidual(attention, p + "attn", h.n_embd)
        yield "ffn_norm.weight", AffineResidual(experts, p + "ffn", h.n_embd)
