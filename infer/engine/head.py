"""A head that guesses tokens ahead (multi-token prediction): its weights, and the ops they add to a program.

Of the model's state of token t behind its last norm and the embedding of token t + 1 it makes a state of its own, of
which the model's output matrix, or the head's own, makes logits of token t + 2. arXiv:2412.19437, section 2.2; what
takes the state behind the norm, and the head's own state in place of it for the next token, is vLLM and llama.cpp.
"""

from typing import NamedTuple

from hybrid.quant.ggml.errors import FormatError

from ..kernels import execute
from ..kernels.rows import elementwise
from ..layers import Layer
from ..loading.hparams import Hparams
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..memory.needs import Specs
from ..program.builder import Builder, Columns, Rows, Weight


class HeadPart(NamedTuple):
    """A layer of the head's block, with the address of the norm in front of it."""

    norm: int
    layer: Layer


class Shared(NamedTuple):
    """What a head uses of its model: matrices, and the address of the last norm."""

    embedding: Weight
    output: Weight
    norm: int


class Head:
    """The head in block `block` of a file. parts: its layers and the names of the norms in front, not loaded yet."""

    def __init__(self, w: Weights, h: Hparams, block: int, parts: list[tuple[str, Layer]], shared: Shared) -> None:
        self.block, self.hparams, n = block, h, h.n_embd
        p = f"blk.{block}."
        self.parts = [HeadPart(_loaded(w, layer, p + norm, n), layer) for norm, layer in parts]
        p += "nextn."
        self.join = w.matrix(p + "eh_proj.weight", n, 2 * n)
        self.token_norm, self.state_norm = w.vector(p + "enorm.weight", n), w.vector(p + "hnorm.weight", n)
        names = p + "shared_head_norm.weight", f"blk.{block}.layer_output_norm.weight"
        self.norm = next((w.vector(name, n) for name in names if name in w), shared.norm)
        rows = shared.embedding.rows
        self.embedding, self.output = (
            w.matrix(name, rows, n) if name in w else matrix
            for name, matrix in (
                (p + "embed_tokens.weight", shared.embedding), (p + "shared_head_head.weight", shared.output),
            )
        )  # fmt: skip
        # what is guessed is taken back, which a recurrent state cannot be
        if any(isinstance(spec, RecurrentSpec) for spec in self.specs):
            raise FormatError(f"{w.gguf.path.name}: block {block} guesses tokens ahead: expected attention, found a "
                              "recurrent layer. Convert the model again.")  # fmt: skip

    @property
    def specs(self) -> Specs:
        """What it keeps of a sequence."""
        return [spec for part in self.parts for spec in part.layer.memory()]

    def add_block(self, b: Builder, states: Rows, stream: Rows, memory: HybridMemory) -> None:
        """From the batch's tokens and a state for each to the residual stream behind the block."""
        h, n, n_tok = self.hparams, self.hparams.n_embd, b.batch.n_tok
        token, both = b.rows(n), b.rows(2 * n)
        b.op(
            elementwise.EMBED[self.embedding.kind], name="embed", count=n_tok, tokens=b.batch.tokens,
            table=self.embedding.address, stride=self.embedding.stride, out=token, n=n,
        )  # fmt: skip
        for rows, weight, first in ((token, self.token_norm, 0), (states, self.state_norm, n)):
            b.op(
                elementwise.rms_norm, name="mtp_norm", count=n_tok, x=rows, weight=weight, out=both.columns(first, n),
                n=n, eps=float(h.eps), scale=1.0,
            )  # fmt: skip
        joined = b.matmul(both, self.join, "mtp_join")
        b.op(elementwise.copy_rows, name="mtp_join", count=n_tok, x=joined, out=stream, n=n)
        residual: Rows | None = None
        for part in self.parts:
            residual = part.layer.build(b, b.norm(stream, part.norm, h.eps, residual), memory)
        assert residual is not None
        b.op(elementwise.add_rows, count=n_tok, x=stream, residual=residual, n=n)
        n_past = int(memory.n_past.ctypes.data)
        b.op(
            execute.advance, n_seg=b.batch.n_seg, seg=b.batch.seg, pos=b.batch.pos, slot=b.batch.slot, n_past=n_past
        )  # fmt: skip

    def add_output(self, b: Builder, stream: Rows) -> tuple[Rows, Rows]:
        """Of the output tokens: the head's states, and their logits."""
        states = b.norm(stream, self.norm, self.hparams.eps, name="mtp_norm", outputs=True)
        return states, b.matmul(states, self.output, "output", Columns(b.batch.all_outputs, b.capacity))


def _loaded(w: Weights, layer: Layer, norm: str, n: int) -> int:
    layer.load(w)
    return w.vector(norm, n)
