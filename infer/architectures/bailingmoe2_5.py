"""Ling 2.5: latent attention on the last layer of every group, lightning attention with RoPE on the others, experts in
groups. Of inclusionAI."""

from hybrid.quant.ggml.families.bailingmoe2 import BailingMoe25Hparams

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer
from ..layers.head_norm import HeadNorm
from ..layers.lightning import RotaryLightning
from ..loading.weights import Weights
from .deepseek2 import DeepSeek2
from .rope import rope_of


class BailingMoe25(DeepSeek2):
    """Ling and Ring 2.5."""

    name = "bailingmoe2-5"
    hparams = BailingMoe25Hparams

    def attention(self, h: BailingMoe25Hparams, i: int, w: Weights) -> Layer:
        if h.n_head_kv[i]:
            return super().attention(h, i, w)
        rope, norm = rope_of(h, w, h.n_rot, NEOX), HeadNorm(h.eps)
        return RotaryLightning(i, h.n_embd, h.n_head, h.d_lightning, rope, norm, h.n_norm_group, h.eps, fused=True)
