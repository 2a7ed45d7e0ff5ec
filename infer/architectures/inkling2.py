"""Inkling 2: Inkling with banked residuals and heads of limited length. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.inkling2 import Inkling2Hparams

from ..kernels.rows.moe import Scoring
from ..layers.banked_residual import BankedInputs, BankedResidual, BankedStreams, Banks
from ..layers.base import Layer
from ..layers.clipped_attention import ClippedAttention
from ..layers.convolved import Convolution, Convolved
from ..layers.feed_forward import MixtureOfExperts, Situ
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part
from .inkling import leaning

SCORE_EPS = 1e-6  # of the norms of streams before they are mixed


def banks(h: Inkling2Hparams) -> Banks:
    return Banks(h.n_embd, h.n_layer, h.n_block, h.eps, SCORE_EPS, normed=True)


class Inkling2(Family):
    """Inkling 2. On layers without the window queries, keys and values read mixes of their own."""

    name = "inkling2"
    hparams = Inkling2Hparams
    embedding_norm = "token_embd_norm.weight"

    def streams(self, h: Inkling2Hparams) -> BankedStreams:
        return BankedStreams(banks(h))

    def block(self, h: Inkling2Hparams, i: int, w: Weights) -> Iterator[Part]:
        attention, experts = (
            Convolved(layer, Convolution(i, part, h.n_embd, h.d_conv))
            for part, layer in (("attn", self.attention(h, i, w)), ("ffn", self.experts(h, i)))
        )
        how = BankedResidual if h.local[i] else BankedInputs
        yield "", how(attention, i, "attn_norm.weight", "attn_res_score.weight", banks(h))
        yield "", BankedResidual(experts, i, "ffn_norm.weight", "ffn_res_score.weight", banks(h), behind=True)

    def attention(self, h: Inkling2Hparams, i: int, w: Weights) -> Layer:
        return ClippedAttention(
            **leaning(h, i, w), limit=h.limit, state_limit=h.state_limit, eps=h.eps, apart=not h.local[i]
        )

    def experts(self, h: Inkling2Hparams, i: int) -> Layer:
        router = Router(h.n_expert, h.n_expert_used, True, Scoring.SIGMOID, scale=h.weights_scale)
        return MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router, activation=Situ(h.gate_limit, h.up_limit))
