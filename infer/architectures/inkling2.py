"""Inkling 2: Inkling with banked residuals and heads of limited length. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

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


def banks(h: Inkling2Hparams, n_layer: int) -> Banks:
    return Banks(h.n_embd, n_layer, h.n_block, h.eps, SCORE_EPS, normed=True)


def mixer(h: Inkling2Hparams, i: int, w: Weights, block: int, apart: bool) -> Layer:
    """Attention of layer i with the weights of `block`. apart: its inputs are side by side."""
    attention = ClippedAttention(
        **leaning(h, i, w, block), limit=h.limit, state_limit=h.state_limit, eps=h.eps, changing=not h.local[i],
        apart=apart,
    )  # fmt: skip
    return Convolved(attention, Convolution(i, "attn", h.n_embd, h.d_conv, block))


def feed_forward(h: Inkling2Hparams, i: int, block: int) -> Layer:
    router = Router(h.n_expert, h.n_expert_used, True, Scoring.SIGMOID, scale=h.weights_scale)
    experts = MixtureOfExperts(block, h.n_embd, h.n_ff_expert, router, activation=Situ(h.gate_limit, h.up_limit))
    return Convolved(experts, Convolution(i, "ffn", h.n_embd, h.d_conv, block))


class Inkling2(Family):
    """Inkling 2. On layers without the window queries, keys and values read mixes of their own."""

    name = "inkling2"
    hparams: ClassVar[type[Any]] = Inkling2Hparams
    embedding_norm = "token_embd_norm.weight"

    def streams(self, h: Inkling2Hparams) -> BankedStreams:
        return BankedStreams(banks(h, h.n_layer))

    def block(self, h: Inkling2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.once(h, i, w, -1, h.n_layer)

    def once(self, h: Inkling2Hparams, i: int, w: Weights, place: int, n_layer: int) -> Iterator[Part]:
        """Layer i, which is number `place` (-1: i) of n_layer that share banks."""
        how, own = (BankedResidual, False) if h.local[i] else (BankedInputs, True)
        attention, shared = mixer(h, i, w, i, own), banks(h, n_layer)
        yield "", how(attention, i, "attn_norm.weight", "attn_res_score.weight", shared, place=place)
        yield (
            "",
            BankedResidual(
                feed_forward(h, i, i), i, "ffn_norm.weight", "ffn_res_score.weight", shared, behind=True, place=place
            ),
        )
