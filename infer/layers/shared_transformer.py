"""A transformer block before several layers, which share its weights: Zamba (arXiv:2405.16712), Zamba2
(arXiv:2411.15242)."""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .attention import Attention
from .base import Layer, MemorySpec
from .feed_forward import GatedFeedForward


@dataclass
class SharedTransformer:
    """mixer(norm(x + W f(norm(a(norm([x, e])))))) of the residual stream x and the token's embedding e.

    x itself does not change. Attention a and feed-forward f have no residuals, and weights of layer `block`.
    """

    layer: int
    block: int
    n_embd: int
    eps: float
    attention: Attention
    feed_forward: GatedFeedForward
    mixer: Layer

    def load(self, w: Weights) -> None:
        n, p, shared = self.n_embd, f"blk.{self.layer}.", f"blk.{self.block}."
        self.embedding = w.embedding("token_embd.weight", n)
        self.norm_in = w.vector(shared + "shared_norm.weight", 2 * n)
        self.norm_between = w.vector(shared + "ffn_norm.weight", n)
        self.norm_mixer = w.vector(p + "attn_norm.weight", n)
        self.w_out = w.matrix(p + "shared_out.weight", n, n)
        for layer in (self.attention, self.feed_forward, self.mixer):
            layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.attention.memory(), *self.mixer.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        n, n_tok = self.n_embd, b.batch.n_tok
        both = b.rows(2 * n)
        b.op(elementwise.copy_rows, count=n_tok, x=x, out=both, n=n)
        b.embed(self.embedding, both.columns(n, n))
        h = self.attention.build(b, b.norm(both, self.norm_in, self.eps), memory)
        h = self.feed_forward.build(b, b.norm(h, self.norm_between, self.eps), memory)
        h = b.matmul(h, self.w_out, "shared_out")
        return self.mixer.build(b, b.norm(h, self.norm_mixer, self.eps, residual=x), memory)
