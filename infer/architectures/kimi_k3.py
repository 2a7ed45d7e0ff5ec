"""Kimi K3: Kimi's delta rule, gated latent attention, narrow experts, banked residuals. Of Moonshot AI."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.banked_residual import BankedResidual, BankedStreams, Banks
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, Situ
from ..layers.kimi_delta import KimiDelta
from ..loading.hparams import key
from ..loading.weights import Weights
from .bailingmoe3 import LOWEST
from .base import Family, Part
from .experts import mixture
from .kimi_linear import KimiLinearHparams
from .latent import latent_attention


@dataclass(frozen=True)
class KimiK3Hparams(KimiLinearHparams):
    """A layer without heads of keys has the delta rule. n_latent 0: experts read the token's rows; n_block: layers that
    share a bank; lowest: logarithm of the lowest decay of a state, 0: none."""

    lowest: float = key("kda.gate_lower_bound", 0.0, minimum=-LOWEST)
    n_latent: int = key("expert_latent_length", 0)
    n_block: int = key("attn_res.block_size", minimum=1)
    beta: float = key("activation.situ_beta")
    linear_beta: float = key("activation.situ_linear_beta")

    @property
    def banks(self) -> Banks:
        return Banks(self.n_embd, self.n_layer, self.n_block, self.eps)


class KimiK3(Family):
    """Kimi K3."""

    name = "kimi-k3"
    hparams = KimiK3Hparams

    def streams(self, h: KimiK3Hparams) -> BankedStreams:
        return BankedStreams(h.banks)

    def block(self, h: KimiK3Hparams, i: int, w: Weights) -> Iterator[Part]:
        mixer = self.attention(h, i, w) if h.n_head_kv[i] else self.delta(h, i, w)
        yield "", BankedResidual(mixer, i, "attn_norm.weight", "attn_res_score.weight", h.banks)
        yield (
            "",
            BankedResidual(
                self.feed_forward(h, i, w), i, "ffn_norm.weight", "ffn_res_score.weight", h.banks, behind=True
            ),
        )

    def delta(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        if h.lowest > 0:
            raise w.wrong("kda.gate_lower_bound", h.lowest, "a negative number, or none")
        n_head = h.n_kda or h.n_head
        return KimiDelta(i, h.n_embd, n_head, h.d_kda, h.d_conv, h.eps, lowest=h.lowest, full_gate=True)

    def attention(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        return latent_attention(h, i, w, gated=f"blk.{i}.attn_gate.weight" in w, gated_values=True)

    def feed_forward(self, h: KimiK3Hparams, i: int, w: Weights) -> Layer:
        if not (h.beta > 0 and h.linear_beta >= 0):
            raise w.wrong(
                "activation.situ_beta", h.beta, "a positive number, with a situ_linear_beta that is not negative"
            )
        gate = Situ(h.beta, h.linear_beta)
        if i < h.n_dense:
            return GatedFeedForward(i, h.n_embd, h.n_ff, activation=gate)
        normed = h.n_latent and f"blk.{i}.ffn_routed_norm.weight" in w
        experts = mixture(
            h, i, w, activation=gate, n_latent=h.n_latent, latent="routed", latent_eps=h.eps if normed else 0.0
        )  # fmt: skip
        if not h.n_shared:
            return experts
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp", activation=gate))
