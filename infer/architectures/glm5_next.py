"""GLM-5.3-Flash (text): Kimi's delta rule, latent attention over pools of tokens that an indexer chooses, experts,
hyper-connections. Of Z.ai."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.glm5_next import Glm5NextHparams

from ..layers.base import Layer
from ..layers.hyper_connections import HyperConnected, HyperSizes, MeanOfStreams
from ..layers.pooled_latent import PooledLatentAttention as Pooled
from ..layers.pooled_latent import PoolIndex
from ..loading.weights import Weights
from .base import Part
from .kimi_linear import KimiLinear, kimi_delta
from .latent import clamped_feed_forward, latent_attention


def hyper(h: Glm5NextHparams) -> HyperSizes:
    """Sizes of the residual streams."""
    return HyperSizes(h.n_embd, h.n_stream, h.n_iter, h.floor, h.eps)


class Glm5Next(KimiLinear):
    """GLM-5.3-Flash."""

    name = "glm5-next"
    hparams = Glm5NextHparams
    has_heads = True

    def streams(self, h: Glm5NextHparams) -> MeanOfStreams:
        return MeanOfStreams(hyper(h))

    def block(self, h: Glm5NextHparams, i: int, w: Weights) -> Iterator[Part]:
        if i >= h.n_run:
            yield from self._ahead(h, i, w)
            return
        for norm, layer in super().block(h, i, w):
            part = norm.removesuffix("_norm.weight")
            yield "", HyperConnected(layer, f"blk.{i}.hc_{part}", f"blk.{i}.{norm}", hyper(h))

    def _ahead(self, h: Glm5NextHparams, i: int, w: Weights) -> Iterator[Part]:
        """A block that guesses tokens ahead, on a single stream. It sees all tokens, as its indexer does in texts of up
        to n_chosen tokens: an unfinished pool could not be taken back with wrong guesses."""
        w.ignore(*(name for name in w.gguf.tensors if name.startswith(f"blk.{i}.indexer")))
        yield "attn_norm.weight", latent_attention(h, i, w)
        yield "ffn_norm.weight", self.feed_forward(h, i, w)

    def delta(self, h: Glm5NextHparams, i: int, w: Weights) -> Layer:
        if h.lowest > 0:
            raise h.wrong(w.gguf, "lowest", "a negative number")
        return kimi_delta(h, i, lowest=h.lowest)

    def attention(self, h: Glm5NextHparams, i: int, w: Weights) -> Layer:
        for name, right in (("n_rot", 0), ("with_tail", True)):
            if getattr(h, name) != right:
                raise h.wrong(w.gguf, name, str(right))
        if not h.q_rank:
            raise h.wrong(w.gguf, "q_rank", "1 or more: the indexer reads the queries' latent vectors")
        if h.n_chosen % h.n_pool:
            raise h.wrong(w.gguf, "n_chosen", f"a multiple of kpool = {h.n_pool}")
        index = PoolIndex(h.n_index_head, h.d_index, h.n_pool, h.n_chosen // h.n_pool, h.index_eps)
        return Pooled(
            i, h.n_embd, h.n_head, h.d_key, 0, h.d_value, h.rank, h.latent_eps or h.eps, q_rank=h.q_rank, index=index,
            source=_source(h, i, w),
        )  # fmt: skip

    def feed_forward(self, h: Glm5NextHparams, i: int, w: Weights) -> Layer:
        return clamped_feed_forward(h, i, w)


def _source(h: Glm5NextHparams, i: int, w: Weights) -> int:
    """The layer whose chosen pools layer i uses; -1: layer i chooses itself."""
    if h.full[i]:
        return -1
    before = [j for j in range(i) if h.n_head_kv[j] and h.full[j]]
    if not before:
        raise h.wrong(w.gguf, "full", f"a layer that chooses before layer {i}, which does not")
    return before[-1]
