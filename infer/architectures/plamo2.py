"""PLaMo 2: alternating Mamba-2 and attention, norms before and after every part. arXiv:2509.04897"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.plamo2 import Plamo2Hparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm, NormWeights
from ..layers.mamba2_projected import ProjectedMamba2
from ..loading.weights import Weights
from .base import Family, Part
from .rope import rope_of


class Plamo2(Family):
    """PLaMo 2."""

    name = "plamo2"
    hparams = Plamo2Hparams

    def block(self, h: Plamo2Hparams, i: int, w: Weights) -> Iterator[Part]:
        p, mixer = f"blk.{i}.", self.attention(h, i, w) if h.n_head_kv[i] else self.mamba(h, i)
        yield "attn_norm.weight", PostNorm(mixer, p + "post_attention_norm", h.n_embd, h.eps)
        feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff, fused=True)
        yield "ffn_norm.weight", PostNorm(feed_forward, p + "post_ffw_norm", h.n_embd, h.eps)

    def attention(self, h: Plamo2Hparams, i: int, w: Weights) -> Layer:
        """Layer i, with attention."""
        if not h.n_head[i]:
            raise h.wrong(w.gguf, "n_head", f"queries on layer {i}, which has keys", h.n_head[i])
        return Attention(
            i, h.n_embd, h.n_head[i], h.n_head_kv[i], h.d_head, rope_of(h, w, h.n_rot or h.d_head, NEOX),
            window=h.windows[i], norm=HeadNorm(h.head_eps or h.eps, NormWeights.OWN), fused=True,
        )  # fmt: skip

    def mamba(self, h: Plamo2Hparams, i: int) -> Layer:
        """Layer i, with Mamba-2."""
        return ProjectedMamba2(i, h.n_embd, h.d_inner, h.d_state, h.d_conv, h.n_ssm_head, h.dt_rank, h.eps)
