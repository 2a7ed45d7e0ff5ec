"""DeepSeek-V3.2: DeepSeek-V3 whose attention sees tokens that an indexer chooses. arXiv:2512.02556"""

from typing import Any, ClassVar

from hybrid.quant.ggml.families.deepseek32 import DeepSeek32Hparams

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer
from ..layers.pooled_latent import IndexedLatentAttention, PoolIndex
from ..loading.weights import Weights
from .deepseek2 import DeepSeek2, rope_and_scale

INDEX_EPS = 1e-6  # of the norm of index keys


class DeepSeek32(DeepSeek2):
    """DeepSeek-V3.2."""

    name = "deepseek32"
    hparams: ClassVar[type[Any]] = DeepSeek32Hparams
    index_style = NEOX  # of RoPE in the indexer

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        if not h.q_rank:
            raise h.wrong(w.gguf, "q_rank", "1 or more: the indexer reads the queries' latent vectors")
        if not 0 <= h.n_rot < h.d_key:
            raise h.wrong(w.gguf, "n_rot", f"less than attention.key_length_mla = {h.d_key}")
        rope, scale = rope_and_scale(h, w)
        index = PoolIndex(h.n_index_head, h.d_index, 1, h.n_chosen, INDEX_EPS)
        return IndexedLatentAttention(
            i, h.n_embd, h.n_head, h.d_key - h.n_rot, h.n_rot, h.d_value, h.rank, h.latent_eps or h.eps, rope, h.q_rank,
            None, scale, index=index, source=self.source(h, i, w), index_style=self.index_style,
        )  # fmt: skip

    def source(self, h: Any, i: int, w: Weights) -> int:
        """The layer whose chosen tokens layer i sees; -1: layer i chooses itself."""
        return -1
