"""AliceAI: Kimi's delta rule, gated attention on every fourth layer, experts, banked residuals. Of Yandex."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.alice_ai import AliceAIHparams
from hybrid.quant.ggml.families.experts import SIGMOID

from ..kernels.rows.moe import Scoring
from ..layers.banked_residual import BankedResidual, BankedStreams, Banks
from ..loading.weights import Weights
from .base import Family, Part
from .kimi_linear import kimi_delta
from .qwen3next import gated_attention, shared_experts


class AliceAI(Family):
    """AliceAI."""

    name = "alice-ai"
    hparams = AliceAIHparams

    def banks(self, h: AliceAIHparams) -> Banks:
        return Banks(h.n_embd, h.n_layer, h.n_block, h.eps)

    def streams(self, h: AliceAIHparams) -> BankedStreams:
        return BankedStreams(self.banks(h))

    def block(self, h: AliceAIHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.gating != SIGMOID:
            raise h.wrong(w.gguf, "gating", f"{SIGMOID}, the sigmoid")
        mixer = gated_attention(h, i, w) if h.n_head_kv[i] else kimi_delta(h, i)
        score = "attn_res_score.weight" if i else ""
        yield "", BankedResidual(mixer, i, "attn_norm.weight", score, self.banks(h))
        experts = shared_experts(h, i, h.n_ff_expert, h.n_ff_shared, scoring=Scoring.SIGMOID)
        norm = "post_attention_norm.weight"
        yield "", BankedResidual(experts, i, norm, "ffn_res_score.weight", self.banks(h), behind=True)
