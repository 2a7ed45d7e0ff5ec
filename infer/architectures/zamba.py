"""Zamba: Mamba-1 in several heads; one shared transformer block runs before it on some layers. arXiv:2405.16712

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.zamba import SharedHparams, ZambaHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer
from ..layers.feed_forward import GatedFeedForward
from ..layers.shared_transformer import SharedTransformer
from ..loading.weights import Weights
from .base import Family, Part, mamba1


def part(h: SharedHparams, i: int, mixer: Layer, *, fused: bool) -> Part:
    """Layer i: `mixer`, on some layers after a shared transformer block. fused: its gate and up are one matrix."""
    if not h.n_head_kv[i]:
        return "attn_norm.weight", mixer
    users = [j for j, n_kv in enumerate(h.n_head_kv) if n_kv]
    block = users[users.index(i) % h.n_shared]
    attention = Attention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head,
        Rope(h.n_rot, h.freq_base, NEOX) if h.n_rot else None, h.attention_scale,
        n_in=2 * h.n_embd, block=block, rank=h.attention_rank,
    )  # fmt: skip
    feed_forward = GatedFeedForward(
        i, h.n_embd, h.n_ff, activation="gelu_erf", fused=fused, block=block, rank=h.ff_rank
    )
    return "", SharedTransformer(i, block, h.n_embd, h.eps, attention, feed_forward, mixer)


class Zamba(Family):
    """Zamba 7B: one shared block."""

    name = "zamba"
    hparams = ZambaHparams

    def block(self, h: ZambaHparams, i: int, w: Weights) -> Iterator[Part]:
        yield part(h, i, mamba1(h, i, n_head=h.n_ssm_head), fused=False)
