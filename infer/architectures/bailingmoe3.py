"""Ling 3.0: Kimi's delta rule with a bounded decay, gated latent attention, experts in groups. Of inclusionAI."""

from hybrid.quant.ggml.families.bailingmoe3 import BailingMoe3Hparams

from ..kernels.attention.rope import NORM
from ..layers.base import Gate, Layer
from ..loading.weights import Weights
from .kimi_linear import KimiLinear, kimi_delta
from .latent import latent_attention
from .rope import rope_of


class BailingMoe3(KimiLinear):
    """Ling 3.0."""

    name = "bailingmoe3"
    hparams = BailingMoe3Hparams
    has_heads = True

    def delta(self, h: BailingMoe3Hparams, i: int, w: Weights) -> Layer:
        if not h.safe_gate:
            raise h.wrong(w.gguf, "safe_gate", "true")
        if not h.lowest < 0:
            raise h.wrong(w.gguf, "lowest", "a negative number")
        return kimi_delta(h, i, lowest=h.lowest, low_rank=False)

    def attention(self, h: BailingMoe3Hparams, i: int, w: Weights) -> Layer:
        return latent_attention(h, i, w, rope_of(h, w, h.n_rot, NORM), gate=Gate.HEADS)
