"""Kimi K3: Kimi's delta rule, gated latent attention, narrow experts, banked residuals. Of Moonshot AI."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.kimi_k3 import KimiK3Hparams

from ..layers.banked_residual import BankedResidual, BankedStreams, Banks
from ..layers.base import Gate, Layer
from ..layers.feed_forward import GatedFeedForward, LatentExperts, Situ
from ..loading.weights import Weights
from .base import Family, Part
from .experts import routed
from .kimi_linear import kimi_delta
from .latent import latent_attention


def banks(h: KimiK3Hparams) -> Banks:
    return Banks(h.n_embd, h.n_layer, h.n_block, h.eps)


class KimiK3(Family):
    """Kimi K3."""

    name = "kimi-k3"
    hparams = KimiK3Hparams

    def streams(self, h: KimiK3Hparams) -> BankedStreams:
        return BankedStreams(banks(h))

    def block(self, h: KimiK3Hparams, i: int, w: Weights) -> Iterator[Part]:
        mixer = self.attention(h, i, w) if h.n_head_kv[i] else self.delta(h, i, w)
        yield "", BankedResidual(mixer, i, "attn_norm.weight", "attn_res_score.weight", banks(h))
        feed_forward = self.feed_forward(h, i, w)
        yield "", BankedResidual(feed_forward, i, "ffn_norm.weight", "ffn_res_score.weight", banks(h), behind=True)

    def delta(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        if h.lowest > 0:
            raise h.wrong(w.gguf, "lowest", "a negative number, or none")
        return kimi_delta(h, i, lowest=h.lowest, full_gate=True)

    def attention(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        return latent_attention(h, i, w, gate=Gate.VALUES if f"blk.{i}.attn_gate.weight" in w else None)

    def feed_forward(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        if not (h.beta > 0 and h.linear_beta >= 0):
            raise h.wrong(w.gguf, "beta", "a positive number, with a situ_linear_beta that is not negative")
        gate = Situ(h.beta, h.linear_beta)
        if i < h.n_dense:
            return GatedFeedForward(i, h.n_embd, h.n_ff, activation=gate)
        normed = h.n_latent and f"blk.{i}.ffn_routed_norm.weight" in w
        latent = LatentExperts(h.n_latent, "routed", h.eps if normed else 0.0) if h.n_latent else None
        return routed(h, i, w, {"activation": gate}, activation=gate, latent=latent)
