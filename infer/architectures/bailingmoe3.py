"""Ling 3.0: Kimi's delta rule with a bounded decay, gated latent attention, experts in groups. Of inclusionAI."""

from dataclasses import dataclass

from ..kernels.attention.rope import NORM
from ..layers.base import Layer
from ..layers.kimi_delta import KimiDelta
from ..loading.hparams import key
from ..loading.weights import Weights
from .kimi_linear import KimiLinear, KimiLinearHparams
from .latent import latent_attention
from .rope import RopeHparams

LOWEST = 80  # no state is left of what is multiplied by exp(-80)


@dataclass(frozen=True)
class BailingMoe3Hparams(RopeHparams, KimiLinearHparams):
    """lowest: logarithm of the lowest decay of a state."""

    lowest: float = key("kda.gate_lower_bound", minimum=-LOWEST)
    safe_gate: bool = key("kda.safe_gate", True)


class BailingMoe3(KimiLinear):
    """Ling 3.0."""

    name = "bailingmoe3"
    hparams = BailingMoe3Hparams
    has_heads = True

    def delta(self, h: BailingMoe3Hparams, i: int, w: Weights) -> Layer:
        if not h.safe_gate:
            raise w.wrong("kda.safe_gate", h.safe_gate, "true")
        if not h.lowest < 0:
            raise w.wrong("kda.gate_lower_bound", h.lowest, "a negative number")
        return KimiDelta(
            i, h.n_embd, h.n_kda or h.n_head, h.d_kda, h.d_conv, h.eps, lowest=h.lowest, low_rank=False
        )  # fmt: skip

    def attention(self, h: BailingMoe3Hparams, i: int, w: Weights) -> Layer:
        return latent_attention(h, i, w, h.rope(w, h.n_rot, NORM), gated=True)
