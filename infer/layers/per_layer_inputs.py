"""Small embeddings of a token for every layer, gated by the residual stream and added to it. Gemma 3n and 4.

They come from a table of their own and from the usual embedding.
"""

import math
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import FormatError

from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..kernels.rows.given import given_rows
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import Layer, MemorySpec

NAME = "per_layer_inputs"  # the name under which the embeddings are left to later layers


@dataclass
class PerLayerInputs:
    """Before the first layer: (sqrt(n) e + norm(W x)) / sqrt(2); then that layer.

    e: the n values per layer of the token in the table; x: its row of the usual embedding, unscaled.
    """

    first: Layer
    n_embd: int
    n: int
    n_layer: int
    eps: float

    @property
    def after_inputs(self) -> Layer:
        return self.first

    def load(self, w: Weights) -> None:
        self.first.load(w)
        n_all = self.n * self.n_layer
        self.embedding = w.embedding("token_embd.weight", self.n_embd)
        self.table = w.embedding("per_layer_token_embd.weight", n_all)
        if self.table.rows < self.embedding.rows:
            raise FormatError(
                f"{w.gguf.path.name}: per_layer_token_embd.weight has {self.table.rows} rows, expected one for each of "
                f"the {self.embedding.rows} tokens. Convert the model again."
            )
        self.w_in = w.matrix("per_layer_model_proj.weight", n_all, self.n_embd)
        # the factor after the norm is part of its weights
        self.norm = w.vector("per_layer_proj_norm.weight", self.n, lambda x: x * np.float32(math.sqrt(0.5)))

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.first.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        n_tok, n_all = b.batch.n_tok, self.n * self.n_layer
        embedded, own = b.rows(self.n_embd), b.rows(n_all)
        for table, rows in ((self.embedding, embedded), (self.table, own)):
            b.embed(table, rows)
        if (pictures := b.batch.pictures) is not None:
            # the factor of the usual embedding, which given rows do not have, is left out here
            b.op(
                given_rows, count=n_tok, given=pictures.given, x=pictures.rows, out=embedded, n=embedded.n,
                scale=self.n_embd**-0.5,
            )  # fmt: skip
        made = b.matmul(embedded, self.w_in, "per_layer_model_proj")
        b.op(
            gated_norm, name="per_layer_norm", count=n_tok, y=made, weight=self.norm, stride=0, out=made,
            n_group=self.n_layer, n=self.n, eps=float(self.eps),
        )  # fmt: skip
        b.op(elementwise.add_rows, count=n_tok, x=made, residual=own, n=made.n, scale=math.sqrt(self.n / 2))
        b.named[NAME] = made
        return self.first.build(b, x, memory)


@dataclass
class PerLayerGate:
    """norm(W (gelu(G x) * e)) of the residual stream x and this layer's n values e of `PerLayerInputs`."""

    layer: int
    n_embd: int
    n: int
    eps: float

    def load(self, w: Weights) -> None:
        p = f"blk.{self.layer}."
        self.w_gate = w.matrix(p + "inp_gate.weight", self.n, self.n_embd)
        self.w_out = w.matrix(p + "proj.weight", self.n_embd, self.n)
        self.norm = w.vector(p + "post_norm.weight", self.n_embd)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        gate, inputs = b.matmul(x, self.w_gate, "per_layer_gate"), b.named[NAME].columns(self.layer * self.n, self.n)
        b.op(elementwise.geglu, count=b.batch.n_tok, gate=gate, up=inputs, out=gate, n=gate.n)
        return b.norm(b.matmul(gate, self.w_out, "per_layer_proj"), self.norm, self.eps, name="post_norm")
