"""MiniMax-01: lightning attention, softmax attention on every eighth layer, experts. arXiv:2501.08313"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import KeptNorm
from ..layers.feed_forward import MixtureOfExperts
from ..layers.lightning import LightningAttention
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class MiniMaxHparams(RopeHparams, AttentionHparams):
    """What takes the place of the residual stream is its norm times `kept`, and a layer's result times `share` is
    added: of layers with softmax attention, with lightning attention, and of experts; 0: residual_scale and 1."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", 0)
    n_rot: int = key("rope.dimension_count", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    residual_scale: float = key("residual_scale")
    kept_attention: float = key("hybrid.attention.residual_scale", 0.0)
    kept_lightning: float = key("hybrid.lightning.residual_scale", 0.0)
    kept_experts: float = key("hybrid.feed_forward.residual_scale", 0.0)
    share_attention: float = key("hybrid.attention.output_scale", 0.0)
    share_lightning: float = key("hybrid.lightning.output_scale", 0.0)
    share_experts: float = key("hybrid.feed_forward.output_scale", 0.0)
    lightning_eps: float = key("hybrid.lightning.norm_rms_epsilon", 0.0)  # 0: eps


class MiniMax(Family):
    """MiniMax-Text-01 and MiniMax-M1."""

    name = "minimax-01"
    hparams = MiniMaxHparams

    def block(self, h: MiniMaxHparams, i: int, w: Weights) -> Iterator[Part]:
        if not h.residual_scale:
            raise w.wrong("residual_scale", h.residual_scale, "a positive number")
        d_head, scale = h.head_size(w, h.d_head), h.residual_scale
        # layers are told apart by their tensors: llama.cpp has two keys that may say it, and its converter writes none
        if f"blk.{i}.attn_q.weight" in w:
            attention = Attention(
                i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, h.rope(w, h.n_rot or d_head, NEOX), window=h.windows[i]
            )  # fmt: skip
            yield "attn_norm.weight", KeptNorm(attention, h.kept_attention or scale, h.share_attention or 1.0)
        else:
            lightning = LightningAttention(i, h.n_embd, h.n_head, d_head, h.n_layer, h.lightning_eps or h.eps)
            yield "attn_norm.weight", KeptNorm(lightning, h.kept_lightning or scale, h.share_lightning or 1.0)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
        yield "ffn_norm.weight", KeptNorm(experts, h.kept_experts or scale, h.share_experts or 1.0)
