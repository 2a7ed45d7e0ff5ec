"""A head for multi-token prediction, which guesses tokens ahead: its weights, and the ops they add to a program.

From the model's state of token t after its last norm and the embedding of token t + 1 the head computes its own state;
the model's output matrix, or the head's own, turns that into logits of token t + 2. arXiv:2412.19437, section 2.2. As
in vLLM and llama.cpp, the head reads the state after the norm, and for the next token its own state instead.

Some models with several residual streams have heads on such streams: a state is all of the model's streams before they
are joined, the embedding is combined with each of them, and the head's own streams serve the next token (DeepSeek-V4's
own programs, SGLang's of Qwen3.8-Flash-Next). GigaChat 3.5's is on its only stream, so before the last norm.
"""

import math
from typing import NamedTuple

from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.families.hparams import Hparams

from ..kernels import execute
from ..kernels.rows import elementwise
from ..layers.base import Layer
from ..layers.norm import Norm
from ..layers.streams import OnStreams, Streams
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..memory.needs import Specs
from ..program.builder import Builder, Columns, Rows, Weight


class HeadPart(NamedTuple):
    """A layer of the head's block, with the norm before it, if any."""

    norm: Norm | None
    layer: Layer


class Shared(NamedTuple):
    """The parts of its model that a head uses: matrices, and the last norm, if any."""

    embedding: Weight
    output: Weight
    norm: Norm | None


class Head:
    """The head in block `block` of a file.

    parts    its layers, not loaded yet, with the names of the norms before them
    streams  its residual streams, if its states are all of them, else None
    gate_factor  of the gates of norms; 0: they have none
    width    values of a state
    """

    def __init__(
        self,
        w: Weights,
        h: Hparams,
        block: int,
        parts: list[tuple[str, Layer]],
        shared: Shared,
        streams: Streams | None = None,
        gate_factor: float = 0.0,
    ) -> None:
        self.block, self.hparams, self.streams, n = block, h, streams, h.n_embd
        self.n_stream = streams.n if streams else 1
        self.width = self.n_stream * n
        p = f"blk.{block}."

        def of(name: str, n: int = n) -> Norm:
            return Norm.load(w, name, n, gate_factor)

        self.parts = []
        for norm, layer in parts:
            layer.load(w)
            self.parts.append(HeadPart(of(p + norm) if norm else None, layer))
        if streams:
            streams.load(w)
        p += "nextn."
        self.join = w.matrix(p + "eh_proj.weight", n, 2 * n)
        self.token_norm = of(p + "enorm.weight")
        # one norm per stream, or one over all streams
        name = p + "hnorm.weight"
        self.n_normed = self.width if name in w and math.prod(w.gguf.info(name).shape) == self.width else n
        self.state_norm = of(name, self.n_normed)
        names = p + "shared_head_norm.weight", f"blk.{block}.layer_output_norm.weight"
        self.norm = next((of(name) for name in names if name in w), shared.norm)
        rows = shared.embedding.rows
        self.embedding, self.output = (
            w.matrix(name, rows, n) if name in w else matrix
            for name, matrix in (
                (p + "embed_tokens.weight", shared.embedding),
                (p + "shared_head_head.weight", shared.output),
            )
        )
        # guesses are taken back, which a recurrent state does not allow
        if any(isinstance(spec, RecurrentSpec) for spec in self.specs):
            raise FormatError(
                f"{w.gguf.path.name}: block {block} guesses tokens ahead: expected attention, found a "
                "recurrent layer. Convert the model again."
            )

    @property
    def specs(self) -> Specs:
        """The memory of its blocks per sequence."""
        return [spec for part in self.parts for spec in part.layer.memory()]

    def add_block(self, b: Builder, states: Rows, stream: Rows, memory: HybridMemory) -> None:
        """Add the block's ops: from the batch's tokens and a state [width] for each to the residual stream [width]."""
        h, n, n_tok = self.hparams, self.hparams.n_embd, b.batch.n_tok
        token = b.rows(n)
        b.embed(self.embedding, token)
        if self.n_normed > n:
            normed = b.rows(self.width)
            self.state_norm.build(b, states, h.eps, name="mtp_norm", out=normed)
        for i in range(self.n_stream):
            both, first = b.rows(2 * n), i * n
            self.token_norm.build(b, token, h.eps, name="mtp_norm", out=both.columns(0, n))
            if self.n_normed > n:
                x, out = normed.columns(first, n), both.columns(n, n)
                b.op(elementwise.copy_rows, name="mtp_norm", count=n_tok, x=x, out=out, n=n)
            else:
                state = states.columns(first, n)
                self.state_norm.build(b, state, h.eps, name="mtp_norm", out=both.columns(n, n))
            joined = b.matmul(both, self.join, "mtp_join")
            b.op(elementwise.copy_rows, name="mtp_join", count=n_tok, x=joined, out=stream.columns(first, n), n=n)
        residual: Rows | None = None
        for part in self.parts:
            if isinstance(part.layer, OnStreams):
                part.layer.build(b, stream, memory)
            else:
                assert part.norm
                residual = part.layer.build(b, part.norm.build(b, stream, h.eps, residual), memory)
        if residual is not None:
            b.op(elementwise.add_rows, count=n_tok, x=stream, residual=residual, n=n)
        n_past = int(memory.n_past.ctypes.data)
        b.op(execute.advance, n_seg=b.batch.n_seg, seg=b.batch.seg, pos=b.batch.pos, slot=b.batch.slot, n_past=n_past)

    def add_output(self, b: Builder, stream: Rows) -> tuple[Rows, Rows]:
        """Add the output tokens' ops: returns the head's states [width], and their logits."""
        columns = Columns(b.batch.all_outputs, b.capacity)
        if self.streams is None:
            assert self.norm
            states = self.norm.build(b, stream, self.hparams.eps, name="mtp_norm", outputs=True)
            return states, b.matmul(states, self.output, "output", columns)
        states, n_out = b.output_rows(stream), b.batch.n_out
        left = self.streams.end(b, states, columns, n_out)
        if self.norm:
            left = self.norm.build(b, left, self.hparams.eps, name="mtp_norm", of_outputs=True)
        return states, b.matmul(left, self.output, "output", columns)
