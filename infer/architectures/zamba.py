"""Zamba: Mamba-1 in several heads, and one transformer block that some layers share in front of it. arXiv:2405.16712

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer
from ..layers.feed_forward import GatedFeedForward
from ..layers.shared_transformer import SharedTransformer
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Mamba1Hparams, Part


@dataclass(frozen=True)
class SharedHparams(AttentionHparams):
    """A layer with heads of keys has a transformer block in front of its Mamba; they take turns in using n_shared."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    attention_scale: float = key("attention.scale", 0.0)
    n_shared: int = key("shared_block_count", 1, minimum=1)
    attention_rank: int = key("attention.lora_rank", 0)
    ff_rank: int = key("feed_forward_lora_rank", 0)

    def part(self, i: int, mixer: Layer, *, fused: bool) -> Part:
        """Layer i; `fused`: gate and up are one matrix."""
        if not self.n_head_kv[i]:
            return "attn_norm.weight", mixer
        users = [j for j, n_kv in enumerate(self.n_head_kv) if n_kv]
        block = users[users.index(i) % self.n_shared]
        attention = Attention(
            i, self.n_embd, self.n_head, self.n_head_kv[i], self.d_head,
            Rope(self.n_rot, self.freq_base, NEOX) if self.n_rot else None, self.attention_scale,
            n_in=2 * self.n_embd, block=block, rank=self.attention_rank,
        )  # fmt: skip
        feed_forward = GatedFeedForward(
            i, self.n_embd, self.n_ff, activation="gelu_erf", fused=fused, block=block, rank=self.ff_rank
        )
        return "", SharedTransformer(i, block, self.n_embd, self.eps, attention, feed_forward, mixer)


@dataclass(frozen=True)
class ZambaHparams(SharedHparams, Mamba1Hparams):
    """n_ssm_head: heads of Mamba-1, each with its own projection to dt, B and C."""

    n_ssm_head: int = key("ssm.head_count", minimum=1)


class Zamba(Family):
    """Zamba 7B: one shared block."""

    name = "zamba"
    hparams = ZambaHparams

    def block(self, h: ZambaHparams, i: int, w: Weights) -> Iterator[Part]:
        yield h.part(i, h.mamba1(i, n_head=h.n_ssm_head), fused=False)
