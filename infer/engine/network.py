"""A model's layers with their weights, and the ops they add to a program: from tokens to logits."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import Remedy, UnsupportedError, shown
from hybrid.quant.ggml.families.hparams import PREFIX, Hparams
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.vision_names import CLIP

from ..architectures import FAMILIES, Family, encoder_of
from ..kernels import execute
from ..kernels.rows import elementwise
from ..kernels.rows.affine import affine_rows
from ..kernels.rows.given import add_given_rows, given_rows
from ..kernels.rows.likelihood import negative_log_likelihood
from ..layers.base import Layer, OwnResidual, optional_bias
from ..layers.streams import OnStreams, Streams
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..memory.needs import Specs
from ..program.builder import Builder, Columns, Rows, Weight, aligned_empty, round_up
from .head import Head, Shared


def family_of(gguf: GGUFFile) -> Family:
    """The architecture of a file. Raises UnsupportedError if it is unknown or an encoder."""
    arch = str(gguf.get("general.architecture"))
    if encoder_of(gguf):
        raise UnsupportedError(
            f"{gguf.path.name} is an encoder ({arch}): it makes embeddings only.",
            remedy=Remedy.EMBEDDINGS,
        )
    if arch == CLIP:
        raise UnsupportedError(f"{gguf.path.name} is a vision tower, not a model. Give the file of its text model.")
    if arch not in FAMILIES:
        near = ", ".join(difflib.get_close_matches(arch, FAMILIES, n=3))
        found = f"{gguf.path.name}: architecture {shown(repr(arch), 60)} is not supported"
        raise UnsupportedError(f"{found}{near and f'; near it are {near}'}. docs/models.md lists the supported ones.")
    return FAMILIES[arch]


class _Norm(NamedTuple):
    """Addresses of a norm's vectors; without a bias it is an RMS norm."""

    weight: int
    bias: int


Widths = Sequence[tuple[str, int]]


@dataclass
class _Part:
    block: int
    norm: _Norm | None  # None: the layer reads the raw residual stream
    layer: Layer


class FixedRows:
    """f32 rows for up to n_ubatch tokens that outlive programs."""

    def __init__(self, width: int, n_ubatch: int) -> None:
        ld = round_up(width, 16) * 4
        memory = aligned_empty(ld * n_ubatch)
        self.nbytes = memory.nbytes
        self.values = memory.view(np.float32).reshape(n_ubatch, -1)[:, :width]
        self.rows = Rows(int(memory.ctypes.data), width, ld)


class Seam(NamedTuple):
    """The start of a block's ops.

    op        index of its first op
    named     rows that earlier layers left by name
    residual  rows that must still be added to the residual stream
    """

    block: int
    op: int
    named: dict[str, Rows]
    residual: Rows | None


class Network:
    """All layers of a file's architecture, loaded.

    n_ctx   tokens that a sequence is to hold; 0: the usual number, or fewer
    stream  f32 [n_ubatch, n_embd], or n_embd for each of several streams: the residual stream, which outlives the
            body's program, since the head reads it
    blocks  the blocks to run; None: all. Without the first, the blocks before fill the stream; without the last, the
            stream is left for later blocks (infer/stages). Only tensors that these blocks need are requested
    given   name and width of rows from the blocks before
    left    name and width of rows for later blocks
    heads   whether to load a head that guesses tokens ahead; it needs all blocks
    """

    def __init__(
        self,
        gguf: GGUFFile,
        n_ubatch: int,
        adapters: Sequence[Adapter] = (),
        n_ctx: int = 0,
        blocks: range | None = None,
        given: Widths = (),
        left: Widths = (),
        heads: bool = True,
    ) -> None:
        self.family: Family = family_of(gguf)
        self.hparams: Hparams = self.family.hparams.read(gguf, self.family.name)
        self.weights = Weights(gguf, adapters, n_ctx)
        self.streams = self.family.streams(self.hparams)
        self.picture_blocks = self.family.picture_blocks(self.hparams)
        self.blocks = range(self.hparams.n_run) if blocks is None else blocks
        self.is_first, self.is_last = self.blocks.start == 0, self.blocks.stop == self.hparams.n_run
        self.head: Head | None = None
        self._load(heads)
        width = self.hparams.n_embd * (self.streams.n if self.streams else 1)
        self._stream = FixedRows(width, n_ubatch)
        self.stream = self._stream.rows
        self.given = {name: FixedRows(n, n_ubatch) for name, n in given}
        self.left = {name: FixedRows(n, n_ubatch) for name, n in left}

    def _load(self, heads: bool) -> None:
        h, w = self.hparams, self.weights
        tied = "output.weight" not in w
        used = self.is_first or (self.is_last and tied)
        self.embedding = w.embedding("token_embd.weight", h.n_embd) if used else None
        self.n_vocab = self.embedding.rows if self.embedding else w.gguf.info("token_embd.weight").shape[0]
        self._load_beginning()
        self.parts: list[_Part] = []
        self.tensors: dict[int, set[str]] = {}  # by block, with tensors that it shares
        self.tensors_beside = w.used  # before and after all blocks
        for i in self.blocks:
            w.used = self.tensors[i] = set()
            for norm, layer in self.family.block(h, i, w):
                weights = self._norm(f"blk.{i}.{norm}") if norm else None
                layer.load(w)
                self.parts.append(_Part(i, weights, layer))
        self.block_scales = {i: self._block_scale(i) for i in self.blocks}
        w.used = self.tensors_beside
        if self.streams and (self.is_first or self.is_last):
            self.streams.load(w)
        if self.is_last:
            self._load_end(tied)
        w.used = self.tensors_beside.union(*self.tensors.values())
        whole = self.is_first and self.is_last
        if whole:
            self.head = self._head(heads)
        w.finish(None if whole else self.blocks)

    def _load_beginning(self) -> None:
        """Load the weights before the first block."""
        h, w, family = self.hparams, self.weights, self.family
        norm, scale = family.embedding_norm, family.embedding_scale
        self.embedding_norm = self._norm(norm) if norm and self.is_first else None
        parts = ("weight", "bias") if scale and self.is_first else ()
        self.embedding_scale = [w.vector(f"{scale}.{part}", h.n_embd) for part in parts]
        self.prefix = self._prefix(h.n_prefix) if h.n_prefix else None
        learned = family.learned_positions and self.is_first
        self.positions = w.embedding("position_embd.weight", h.n_embd) if learned else None

    def _prefix(self, n: int) -> np.ndarray:
        """The rows that stand before every text, f32 [n, n_embd]. Raises UnsupportedError with adapters."""
        w = self.weights
        if w.adapters:
            raise UnsupportedError(
                f"{w.gguf.path.name}: adapters are not supported for a model with a prefix of {n} rows before every "
                "text, which is computed once. Leave out the adapters."
            )
        return w.array(PREFIX, n, self.hparams.n_embd)

    def _load_end(self, tied: bool) -> None:
        """Load the weights after the last block."""
        h, w = self.hparams, self.weights
        # the division of logits by a scale is part of the norm, where it costs nothing
        self.output_norm = self._norm(self.family.output_norm, h.scales.logits) if self.family.output_norm else None
        output = self.embedding if tied else w.matrix("output.weight", self.n_vocab, h.n_embd)
        assert output is not None
        self.output = output
        self.output_bias = optional_bias(w, "output.weight", self.n_vocab)

    def _head(self, wanted: bool) -> Head | None:
        """The first head of the file (repeated, it guesses all tokens), or None if no head runs here."""
        h, w, i = self.hparams, self.weights, self.hparams.n_run
        runs = wanted and self.family.has_heads and f"blk.{i}.nextn.eh_proj.weight" in w
        for other in range(i + runs, h.n_layer):
            w.ignore_block(other)
        if not runs:
            return None
        assert self.embedding is not None
        shared = Shared(self.embedding, self.output, self.output_norm[0] if self.output_norm else 0)
        return Head(w, h, i, list(self.family.block(h, i, w)), shared, self.family.head_streams(h, i, w))

    def read_by_passes(self) -> list[str]:
        """Names of the matrices that passes read whole, in reading order."""
        looked_up, stored = self.weights.looked_up, self.weights.gguf.tensors  # layers may have made further matrices
        matrices = (matrix.name for matrix in self.weights.matrices)
        names = [name for name in matrices if name in stored and name not in looked_up]
        return names + ([self.output.name] if self.is_last and self.output.name in looked_up else [])

    def _block_scale(self, i: int) -> float:
        """The factor of the residual stream after block i."""
        h, name = self.hparams, f"blk.{i}.{self.family.block_scale}"
        if self.family.block_scale and name in self.weights:
            return float(self.weights.array(name, 1)[0])
        return 0.5 if h.halve_every and (i + 1) % h.halve_every == 0 else 1.0

    @property
    def nbytes(self) -> int:
        """Bytes in memory in addition to the mapped file: vectors, and padded copies."""
        return self.weights.nbytes_copied + self._stream.nbytes

    def streams_of(self, n: int) -> np.ndarray:
        """The residual streams of the n tokens of the last run, f32 [n, width]."""
        return self._stream.values[:n].copy()

    def entering(self) -> list[np.ndarray]:
        """Rows from the blocks before, f32 [n_ubatch, width] each: the residual stream, then the rows in `given`."""
        return [self._stream.values, *(fixed.values for fixed in self.given.values())]

    def leaving(self) -> list[np.ndarray]:
        """Rows for later blocks: the residual stream, then the rows in `left`."""
        return [self._stream.values, *(fixed.values for fixed in self.left.values())]

    def _norm(self, name: str, divisor: float = 1.0) -> _Norm:
        """The weights of a norm, divided by `divisor`, and for a layer norm also the bias."""
        n, has_bias = self.hparams.n_embd, self.family.layer_norms and self.family.norm_biases
        names = [name, name.removesuffix("weight") + "bias"] if has_bias else [name]
        parts = [self.weights.vector(part, n, lambda x: x / np.float32(divisor)) for part in names]
        if self.family.layer_norms and not has_bias:
            parts.append(self.weights.keep(np.zeros(n, np.float32)))
        return _Norm(parts[0], parts[1] if len(parts) > 1 else 0)

    @property
    def specs(self) -> Specs:
        """The layers' memory per sequence."""
        return [spec for part in self.parts for spec in part.layer.memory()]

    @property
    def all_specs(self) -> Specs:
        """The memory of the layers and of the head that guesses tokens ahead, per sequence."""
        return [*self.specs, *(self.head.specs if self.head else ())]

    def fill_stream(self, rows: np.ndarray) -> None:
        """Write rows f32 [n, n_embd] in place of the embeddings of n tokens."""
        self._stream.values[: len(rows)] = rows

    def add_body(
        self,
        b: Builder,
        memory: HybridMemory,
        trace: list[Rows] | None = None,
        seams: list[Seam] | None = None,
        *,
        embeds: bool = True,
    ) -> Rows | None:
        """Add all ops before the final norm. Returns the last residual if it is still to be added, else None.

        `trace` collects rows with copies of the embedding and of the residual stream after every block, `seams` the
        starts of blocks. embeds: whether it fills the stream; otherwise see `fill_stream`.
        """
        x, n_tok = self.stream, b.batch.n_tok
        if self.is_first and embeds:
            self._add_embedding(b)
        b.named |= {name: fixed.rows for name, fixed in self.given.items()}
        residual: Rows | None = None
        for i, part in enumerate(self.parts):
            begins = i == 0 or part.block != self.parts[i - 1].block
            if seams is not None and begins:
                seams.append(Seam(part.block, len(b.ops), dict(b.named), residual))
            if trace is not None and begins:
                trace.append(self._add_tap(b, residual))
                residual = None
            if begins:
                residual = self._add_to_pictures(b, part.block, residual)
            if isinstance(part.layer, OnStreams):
                part.layer.build(b, x, memory)
                continue
            residual = self._add_part(b, part, residual, memory)
            ends = i + 1 == len(self.parts) or part.block != self.parts[i + 1].block
            if ends and (scale := self.block_scales[part.block]) != 1.0:
                if residual is not None:
                    self.add_residual(b, residual)
                b.op(elementwise.scale_rows, count=n_tok, x=x, n=x.n, scale=scale)
                residual = None
        if self.is_last:
            residual = self._add_to_pictures(b, self.blocks.stop, residual)
        if trace is not None:
            trace.append(self._add_tap(b, residual))
        for name, fixed in self.left.items():
            b.op(elementwise.copy_rows, name="left", count=n_tok, x=b.named[name], out=fixed.rows, n=fixed.rows.n)
        n_past = int(memory.n_past.ctypes.data)
        b.op(execute.advance, n_seg=b.batch.n_seg, seg=b.batch.seg, pos=b.batch.pos, slot=b.batch.slot, n_past=n_past)
        return residual

    def _add_to_pictures(self, b: Builder, block: int, residual: Rows | None) -> Rows | None:
        """Add the rows for pictures' tokens that belong before a block, after `residual`; returns it if it is left."""
        pictures = b.batch.pictures
        if pictures is None or (rows := pictures.added.get(block)) is None:
            return residual
        if residual is not None:
            self.add_residual(b, residual)
        x, given = self.stream, pictures.given
        b.op(add_given_rows, name="pictures", count=b.batch.n_tok, given=given, x=rows, out=x, n=rows.n)
        return None

    def _add_part(self, b: Builder, part: _Part, residual: Rows | None, memory: HybridMemory) -> Rows | None:
        """Add a norm, which first adds `residual` to the stream, and its layer; returns the layer's residual."""
        h, x, layer = self.hparams, self.stream, part.layer
        if part.norm:
            rows = b.norm(x, part.norm.weight, h.eps, residual, scale=h.scales.residual, bias=part.norm.bias)
        else:
            rows = self._add_tap(b, residual)
        if isinstance(layer, OwnResidual):
            layer.before(b, rows, x)
        y = layer.build(b, rows, memory)
        return layer.behind(b, x, y) if isinstance(layer, OwnResidual) else y

    def _add_embedding(self, b: Builder) -> None:
        """Add the ops that fill the residual stream from the tokens."""
        h, n_tok = self.hparams, b.batch.n_tok
        x = self.stream.columns(0, h.n_embd)
        assert self.embedding is not None
        b.embed(self.embedding, x)
        if self.positions:
            own = b.rows(x.n)
            b.embed(self.positions, own, b.batch.rope_pos)
            b.op(elementwise.add_rows, name="embed", count=n_tok, x=x, residual=own, n=x.n)
        if h.scales.embedding != 1.0:
            b.op(elementwise.scale_rows, count=n_tok, x=x, n=x.n, scale=float(h.scales.embedding))
        if self.embedding_scale:
            weight, bias = self.embedding_scale
            b.op(affine_rows, name="embed", count=n_tok, x=x, weight=weight, bias=bias, n=x.n)
        if self.embedding_norm:
            weight, bias = self.embedding_norm
            b.norm(x, weight, h.eps, name="token_embd_norm", bias=bias, out=x)
        if self.family.rms_of_embedding:
            b.op(
                elementwise.rms_norm, name="token_embd_norm", count=n_tok, x=x, residual=None, out=x, n=x.n,
                eps=float(h.eps),
            )  # fmt: skip
        if (pictures := b.batch.pictures) is not None:
            b.op(given_rows, name="pictures", count=n_tok, given=pictures.given, x=pictures.rows, out=x, n=x.n)
        if self.streams:
            self.streams.begin(b, self.stream)

    def _add_tap(self, b: Builder, residual: Rows | None) -> Rows:
        """Add the residual to the stream; returns a copy of the stream."""
        x = self.stream
        if residual is not None:
            self.add_residual(b, residual)
        kept = b.rows(x.n)
        b.op(elementwise.copy_rows, count=b.batch.n_tok, x=x, out=kept, n=x.n)
        return kept

    def add_residual(self, b: Builder, residual: Rows) -> None:
        x, scale = self.stream, float(self.hparams.scales.residual)
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=x, residual=residual, n=x.n, scale=scale)

    def add_last_norm(self, b: Builder, residual: Rows | None) -> Rows:
        """Add the final norm of the output tokens."""
        h, norm = self.hparams, self.output_norm
        if self.streams:
            return self._add_collapse(b, self.streams)
        assert norm is not None
        return b.norm(
            self.stream,
            norm.weight,
            h.eps,
            residual,
            scale=h.scales.residual,
            name="output_norm",
            bias=norm.bias,
            outputs=True,
        )

    def _add_collapse(self, b: Builder, streams: Streams) -> Rows:
        """Join all streams of an output token into one row, normalized where the family has a final norm."""
        columns, norm = Columns(b.batch.all_outputs, b.capacity, of=b.batch.out_index), self.output_norm
        x = streams.end(b, b.output_rows(self.stream), columns, b.batch.n_out)
        if norm is None:
            return x
        return b.norm(x, norm.weight, self.hparams.eps, name="output_norm", count=b.batch.n_out)

    def add_head(self, b: Builder, residual: Rows | None) -> Rows:
        """Add the final norm and the logits of the output tokens."""
        return self.add_logits(b, self.add_last_norm(b, residual), self.output, self.output_bias)

    def add_logits(self, b: Builder, x: Rows, output: Weight, bias: int) -> Rows:
        """Add the logits of rows after the last norm, one per row of the matrix `output`."""
        logits = b.matmul(x, output, "output", Columns(b.batch.all_outputs, b.capacity, of=b.batch.out_index))
        if bias:
            b.op(
                elementwise.add_rows,
                name="bias",
                count=b.batch.n_out,
                x=logits,
                residual=bias,
                ldresidual=0,
                n=logits.n,
            )
        if cap := self.hparams.logit_cap:
            b.op(elementwise.cap_rows, count=b.batch.n_out, x=logits, n=logits.n, cap=float(cap))
        return logits

    def add_likelihood(self, b: Builder, logits: Rows, out: int) -> None:
        """Add -log p of the targets of the output tokens, f64 at the address `out`."""
        b.op(
            negative_log_likelihood,
            name="likelihood",
            count=b.batch.n_out,
            logits=logits,
            n_vocab=self.n_vocab,
            targets=b.batch.targets,
            out=out,
        )
