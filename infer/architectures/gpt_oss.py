"""gpt-oss: attention with a sink in every head, over a window on every other layer; experts. arXiv:2508.10925"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import Clamp, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class GptOssHparams(RopeHparams, AttentionHparams):
    """window: tokens that a local layer sees, local: which layers these are. alpha, limit: of the experts' gates; the
    keys are ours, llama.cpp takes the usual values."""

    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 2, pattern=True)
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    alpha: float = key("hybrid.expert_swiglu_alpha", 1.702, minimum=1e-6)
    limit: float = key("hybrid.expert_swiglu_limit", 7.0, minimum=1e-6)


class GptOss(Family):
    """gpt-oss."""

    name = "gpt-oss"
    hparams = GptOssHparams

    def block(self, h: GptOssHparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = h.head_size(w, h.d_head)
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, h.rope(w, d_head, NEOX),
            window=h.window if h.local[i] else 0, sinks=True,
        )  # fmt: skip
        yield "post_attention_norm.weight", MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, renormalize=True, biased=True,
            clamp=Clamp(h.limit, h.alpha, 1.0),
        )  # fmt: skip
