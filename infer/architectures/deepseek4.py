"""DeepSeek-V4: attention over a window and over compressed groups of tokens, which an indexer chooses on some layers;
experts, on the first layers by token; all on hyper-connections. Of DeepSeek."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..kernels.attention.rope import NORM
from ..layers.attention import Rope
from ..layers.base import Layer, Sum
from ..layers.compressed_attention import CompressedAttention, IndexSizes
from ..layers.feed_forward import Clamp, GatedFeedForward, MixtureOfExperts
from ..layers.hyper_connections import HyperConnected, HyperSizes, LearnedMixOfStreams
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Family, Part
from .rope import RopeHparams

SQRT_SOFTPLUS = 4  # of expert_gating_func


@dataclass(frozen=True)
class DeepSeek4Hparams(RopeHparams):
    """every: tokens of an entry of each layer, 0: it has none. freq_base and no scaling are for layers without entries,
    compressed_base and the scaling for the others. n_hashed: first layers whose experts go by tokens."""

    n_head: int = key("attention.head_count", minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", minimum=2)
    q_rank: int = key("attention.q_lora_rank", minimum=1)
    window: int = key("attention.sliding_window", minimum=1)
    every: tuple[int, ...] = key("attention.compress_ratios", per_layer=True, more=True)
    compressed_base: float = key("attention.compress_rope_freq_base", minimum=1)
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    n_best: int = key("attention.indexer.top_k", minimum=1)
    n_group: int = key("attention.output_group_count", minimum=1)
    out_rank: int = key("attention.output_lora_rank", minimum=1)
    n_stream: int = key("hyper_connection.count", minimum=1)
    n_iter: int = key("hyper_connection.sinkhorn_iterations", minimum=1)
    floor: float = key("hyper_connection.epsilon")
    n_hashed: int = key("hash_layer_count")
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_shared: int = key("expert_shared_count", minimum=1)
    weights_norm: bool = key("expert_weights_norm")
    weights_scale: float = key("expert_weights_scale")
    gating: int = key("expert_gating_func")
    limit: tuple[float, ...] = key("swiglu_clamp_exp", per_layer=True)
    limit_shared: tuple[float, ...] = key("swiglu_clamp_shexp", per_layer=True)

    @property
    def hyper(self) -> HyperSizes:
        """Sizes of the residual streams."""
        return HyperSizes(self.n_embd, self.n_stream, self.n_iter, self.floor, self.eps)

    def turned(self, w: Weights, every: int) -> Rope:
        """How heads turn, of layers with entries or without. YaRN makes cos and sin no larger here, as it is published
        and llama.cpp has it."""
        if not every:
            return Rope(self.n_rot, self.freq_base, NORM)
        rope = replace(self, freq_base=self.compressed_base).rope(w, self.n_rot, NORM)
        rope.magnitude = self.attention
        return rope


class DeepSeek4(Family):
    """DeepSeek-V4."""

    name = "deepseek4"
    hparams = DeepSeek4Hparams
    has_heads = True

    def streams(self, h: DeepSeek4Hparams) -> LearnedMixOfStreams:
        return LearnedMixOfStreams(h.hyper)

    def head_streams(self, h: DeepSeek4Hparams, i: int, w: Weights) -> LearnedMixOfStreams:
        own = f"blk.{i}.nextn.hc_head"
        return LearnedMixOfStreams(h.hyper, own if own + "_fn.weight" in w else "output_hc")

    def block(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Iterator[Part]:
        for part, layer in (("attn", self.attention(h, i, w)), ("ffn", self.experts(h, i, w))):
            yield "", HyperConnected(layer, f"blk.{i}.hc_{part}", f"blk.{i}.{part}_norm.weight", h.hyper)

    def attention(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Layer:
        indexed = [f"blk.{j}.indexer.proj.weight" in w for j in range(h.n_layer)]
        if indexed[i] and not h.every[i]:
            raise w.wrong("attention.compress_ratios", list(h.every), f"entries for the indexer of layer {i}")
        return CompressedAttention(
            i, h.n_embd, h.n_head, h.d_head, h.q_rank, h.n_group, h.out_rank, h.window, h.turned(w, h.every[i]), h.eps,
            h.every[i], IndexSizes(h.n_index_head, h.d_index, h.n_best) if indexed[i] else None,
            like=next(j for j in range(h.n_layer) if (h.every[j], indexed[j]) == (h.every[i], indexed[i])),
        )  # fmt: skip

    def experts(self, h: DeepSeek4Hparams, i: int, w: Weights) -> Layer:
        if h.gating != SQRT_SOFTPLUS:
            raise w.wrong("expert_gating_func", h.gating, f"{SQRT_SOFTPLUS}, the root of the softplus")
        clamp, shared = (Clamp(limit[i]) if limit[i] else None for limit in (h.limit, h.limit_shared))
        routed = MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, scale=h.weights_scale or 1.0,
            clamp=clamp, softplus=True, by_token=i < h.n_hashed,
        )  # fmt: skip
        return Sum(routed, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp", clamp=shared))
