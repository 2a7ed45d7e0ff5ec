"""Llama 4 (text): attention in chunks with RoPE; on every fourth layer over all tokens without; experts. Of Meta."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.llama4 import Llama4Hparams

from ..kernels.rows.moe import ChosenBy, Scoring
from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm, NormWeights
from ..layers.query_scale import QueryScale
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Part, head_size
from .llama import Llama
from .rope import rope_of

NOT_NORMED = 128  # number of experts of the one model without norms on queries and keys, as in llama.cpp


class Llama4(Llama):
    """Llama 4. The weight of an expert multiplies its input; a shared expert reads every token. Layers without a router
    are dense."""

    name = "llama4"
    hparams = Llama4Hparams

    def block(self, h: Llama4Hparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        turned = self._turned(h, i, w)
        normed = w.gguf.get("hybrid.attention.qk_norm", h.n_expert != NOT_NORMED)
        if not isinstance(normed, bool):
            raise w.wrong("hybrid.attention.qk_norm", normed, "true or false")
        chunked = h.window > 0 and h.chunked[i]
        scale = QueryScale(h.temperature, h.period, 1) if h.temperature and not turned else None
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head,
            rope_of(h, w, h.n_rot or d_head, self.style) if turned else None,
            window=h.chunk if chunked else 0, aligned=chunked, query_scale=scale,
            norm=HeadNorm(h.eps, NormWeights.NONE, after_rope=True) if turned and normed else None,
        )  # fmt: skip
        routed = f"blk.{i}.ffn_gate_inp.weight" in w
        yield "ffn_norm.weight", self._experts(h, i) if routed else GatedFeedForward(i, h.n_embd, h.n_ff)

    def _turned(self, h: Llama4Hparams, i: int, w: Weights) -> bool:
        """Whether layer i has RoPE. In a model without chunks all layers have it, unless a key says otherwise."""
        return h.turned[i] or (h.window == 0 and w.gguf.get("hybrid.rope.layer_pattern", None) is None)

    def _experts(self, h: Llama4Hparams, i: int) -> Layer:
        router = Router(h.n_expert, h.n_expert_used, scoring=Scoring.SIGMOID, chosen_by=ChosenBy.LOGIT)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router, weighs_input=True)
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_expert, "_shexp"))
