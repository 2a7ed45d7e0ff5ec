"""DeepSeek-V4: attention over a window and over compressed groups of tokens, which an indexer chooses on some layers;
experts, chosen by token on the first layers; hyper-connections. Of DeepSeek."""

from collections.abc import Iterator
from dataclasses import replace

from hybrid.quant.ggml.families.deepseek4 import DeepSeek4Hparams

from ..kernels.attention.rope import NORM
from ..kernels.rows.moe import ChosenBy, Scoring
from ..layers.attention import Rope
from ..layers.base import Layer, Sum
from ..layers.compressed_attention import CompressedAttention, IndexSizes
from ..layers.feed_forward import Clamp, GatedFeedForward, MixtureOfExperts
from ..layers.hyper_connections import HyperConnected, HyperSizes, LearnedMixOfStreams
from ..loading.weights import Weights
from .base import Family, Part
from .experts import router_of
from .rope import rope_of

SQRT_SOFTPLUS = 4  # value of expert_gating_func


def hyper(h: DeepSeek4Hparams) -> HyperSizes:
    """Sizes of the residual streams."""
    return HyperSizes(h.n_embd, h.n_stream, h.n_iter, h.floor, h.eps)


def turned(h: DeepSeek4Hparams, w: Weights, every: int) -> Rope:
    """RoPE of a layer. every: tokens of a compressed group; 0: no groups. YaRN does not scale cos and sin here, as
    published and in llama.cpp."""
    if not every:
        return Rope(h.n_rot, h.freq_base, NORM)
    rope = rope_of(replace(h, freq_base=h.compressed_base), w, h.n_rot, NORM)
    rope.magnitude = h.attn_factor
    return rope


class DeepSeek4(Family):
    """DeepSeek-V4."""

    name = "deepseek4"
    hparams = DeepSeek4Hparams
    has_heads = True

    def streams(self, h: DeepSeek4Hparams) -> LearnedMixOfStreams:
        return LearnedMixOfStreams(hyper(h))

    def head_streams(self, h: DeepSeek4Hparams, i: int, w: Weights) -> LearnedMixOfStreams:
        own = f"blk.{i}.nextn.hc_head"
        return LearnedMixOfStreams(hyper(h), own if own + "_fn.weight" in w else "output_hc")

    def block(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Iterator[Part]:
        for part, layer in (("attn", self.attention(h, i, w)), ("ffn", self.experts(h, i, w))):
            yield "", HyperConnected(layer, f"blk.{i}.hc_{part}", f"blk.{i}.{part}_norm.weight", hyper(h))

    def attention(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Layer:
        indexed = [f"blk.{j}.indexer.proj.weight" in w for j in range(h.n_layer)]
        if indexed[i] and not h.every[i]:
            raise h.wrong(w.gguf, "every", f"entries for the indexer of layer {i}")
        return CompressedAttention(
            i, h.n_embd, h.n_head, h.d_head, h.q_rank, h.n_group, h.out_rank, h.window, turned(h, w, h.every[i]), h.eps,
            h.every[i], IndexSizes(h.n_index_head, h.d_index, h.n_best) if indexed[i] else None,
            like=next(j for j in range(h.n_layer) if (h.every[j], indexed[j]) == (h.every[i], indexed[i])),
        )  # fmt: skip

    def experts(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Layer:
        if h.gating != SQRT_SOFTPLUS:
            raise h.wrong(w.gguf, "gating", f"{SQRT_SOFTPLUS}, the root of the softplus")
        clamp, shared = (Clamp(limit[i]) if limit[i] else None for limit in (h.limit, h.limit_shared))
        chosen_by = ChosenBy.TOKEN if i < h.n_hashed else ChosenBy.SCORE
        router = router_of(h, scoring=Scoring.ROOT_SOFTPLUS, chosen_by=chosen_by)
        routed = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router, clamp=clamp)
        return Sum(routed, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp", clamp=shared))
