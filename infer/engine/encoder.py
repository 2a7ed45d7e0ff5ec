"""Encoders: whole texts pass through the layers, several per pass, and nothing is kept between passes.

There is no cache of keys and values: the keys and values of one layer are intermediate results in the program's arena,
which the next layer overwrites. A text's rows are the same bits whatever texts run with it.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from hybrid.quant.ggml.cpus import check_usable
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.numa import interleaved, nodes_to_spread_over
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf

from ..architectures import ENCODERS, encoder_of
from ..kernels import execute
from ..kernels.attention.kv import CACHE_TYPES, pages_of
from ..kernels.build.jit import CompileProgress, compile_kernels
from ..kernels.emit.isa import host
from ..kernels.products import gemm
from ..kernels.rows import elementwise
from ..layers.base import Layer
from ..loading.classifier import Classifier
from ..loading.dense import Dense
from ..loading.options import LoadFields, LoadOptions, merged
from ..loading.spread import spread
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import GEMV_COLUMNS, Batch, Builder, Program, Rows, aligned_empty, round_up
from ..program.threads import Pool, default_threads

PASS_TOKENS = 512  # most tokens of a pass, unless one text is longer
PASS_TEXTS = 32  # most texts of a pass
Norm = tuple[int, int]  # addresses of weights and biases; an RMS norm has no biases: 0


class Encoder:
    """A loaded encoder. Use `load`."""

    def __init__(
        self, gguf: GGUFFile, n_threads: int, exact: bool, cpus: Sequence[int] = (), nodes: Sequence[int] = ()
    ) -> None:
        self.gguf, self.n_threads, self.exact, self._cpus, self._nodes = gguf, n_threads, exact, cpus, nodes
        arch, family = gguf.get("general.architecture"), encoder_of(gguf)
        if family is None:
            raise UnsupportedError(
                f"{gguf.path.name}: {arch!r} is not an encoder; the encoders are: {', '.join(ENCODERS)}."
            )
        self.family = family
        self.hparams = family.hparams.read(gguf, arch)
        self.n_embd, self.n_ctx = self.hparams.n_embd, self.hparams.n_ctx_train
        self._load(Weights(gguf))
        self._programs: dict[int, tuple[Program, Rows]] = {}
        self._pool: Pool | None = None
        # layers keep nothing in it: only its table of the pages of each text in a pass is used
        self.memory = HybridMemory([], PASS_TEXTS, self.n_ctx, CACHE_TYPES["f32"])
        self._make_batch(PASS_TOKENS)
        self._weights.reach(self.n_ctx)
        self.compile_seconds = 0.0
        self.numa_note = ""  # as in LoadedModel

    @classmethod
    def load(
        cls,
        path: Path | str,
        options: LoadOptions | None = None,
        *,
        progress: CompileProgress | None = None,
        **fields: Unpack[LoadFields],
    ) -> "Encoder":
        """Open a GGUF file. options, fields and progress as in `LoadedModel.load`; options about memory have no effect.

        Raises FormatError, UnsupportedError or UsageError.
        """
        given = merged(options, fields)
        check_usable(given.cpus)
        if given.lora:
            raise UnsupportedError(f"{Path(path).name}: adapters are not applied to encoders. Leave them out.")
        nodes, note = nodes_to_spread_over(given.numa == "interleave")
        with interleaved(nodes):
            encoder = cls(open_gguf(path), given.n_threads or default_threads(), given.exact, given.cpus, nodes)
            encoder.numa_note = spread(encoder.gguf, nodes).note(encoder.gguf.path.name) if nodes else note
            compiled = (lambda _n, done, total: progress("compile", done, total)) if progress else None
            encoder._program(PASS_TOKENS, compiled)
        return encoder

    # --- loading ---
    def _load(self, w: Weights) -> None:
        h, self._weights = self.hparams, w
        self.embedding = w.embedding("token_embd.weight", h.n_embd)
        self.n_vocab = self.embedding.rows
        learned, norm = self.family.learned_positions, self.family.embedding_norm
        self.positions = w.embedding("position_embd.weight", h.n_embd) if learned else None
        if self.positions and self.positions.rows != h.n_ctx_train:
            raise w.wrong("context_length", h.n_ctx_train, f"{self.positions.rows}, the rows of position_embd.weight")
        # a text has the first type of the two in training, or its second part has the second type
        self.types = w.embedding("token_types.weight", h.n_embd) if "token_types.weight" in w else None
        self.embedding_norm = self._norm(norm) if norm else None
        self.output_norm = self._norm(self.family.output_norm) if self.family.output_norm else None
        self.parts: list[tuple[Layer, Norm | None]] = []
        for i in range(h.n_layer):
            for norm, layer in self.family.block(h, i, w, PASS_TEXTS):
                layer.load(w)
                self.parts.append((layer, self._norm(f"blk.{i}.{norm}") if norm else None))
        self.classifier = Classifier.read(w.gguf, h.n_embd, h.eps)
        self.dense = Dense.read(w.gguf, h.n_embd)
        w.finish()

    def _norm(self, weight: str) -> Norm:
        w, n, family = self._weights, self.n_embd, self.family
        bias = w.vector(weight.removesuffix("weight") + "bias", n) if family.layer_norms and family.norm_biases else 0
        if family.layer_norms and not bias:
            bias = w.keep(np.zeros(n, np.float32))
        return w.vector(weight, n), bias

    # --- programs ---
    def _make_batch(self, n: int) -> None:
        """Make the control block for passes of up to n tokens, and drop all programs, which contain its addresses."""
        names = ("tokens", "types", "pos", "last", "near", "slot")
        self._control = {name: aligned_empty(8 * n).view(np.int64) for name in names}
        self._control |= {name: aligned_empty(64).view(np.int64) for name in ("ctl", "all_tokens")}
        for array in self._control.values():
            array[:] = 0
        address = {name: int(array.ctypes.data) for name, array in self._control.items()}
        self._types = address.pop("types")
        unused = dict.fromkeys(("n_seg", "n_out", "seg", "out_index", "targets", "all_outputs"), 0)
        self.batch = Batch(n_tok=address["ctl"], **address, **unused, rope_pos=address["pos"], pictures=None)
        self.n_most = n
        self._programs.clear()

    def _add_norm(self, b: Builder, x: Rows, norm: Norm, residual: Rows | None = None) -> Rows:
        """norm(x + residual)"""
        return b.norm(x, norm[0], self.hparams.eps, residual, bias=norm[1])

    def _build(self, capacity: int) -> tuple[Program, Rows]:
        b, n_tok = Builder(capacity, self.n_threads, exact=self.exact, batch=self.batch), self.batch.n_tok
        x = b.rows(self.n_embd)
        b.embed(self.embedding, x)
        if self.types is not None:
            types = b.rows(self.n_embd)
            b.embed(self.types, types, self._types)
            b.op(elementwise.add_rows, name="embed", count=n_tok, x=x, residual=types, n=x.n)
        if self.positions is not None:
            places = b.rows(self.n_embd)
            b.embed(self.positions, places, self.batch.pos)
            b.op(elementwise.add_rows, name="embed", count=n_tok, x=x, residual=places, n=x.n)
        if (scale := self.hparams.scales.embedding) != 1.0:
            b.op(elementwise.scale_rows, name="embed", count=n_tok, x=x, n=x.n, scale=float(scale))
        if self.embedding_norm:
            x = self._add_norm(b, x, self.embedding_norm)
        x = self._add_norms_first(b, x) if self.family.norms_first else self._add_norms_after(b, x)
        b.keep(x)
        return b.build(), x

    def _add_norms_after(self, b: Builder, x: Rows) -> Rows:
        for layer, norm in self.parts:
            assert norm is not None
            x = self._add_norm(b, x, norm, layer.build(b, x, self.memory))
        return x

    def _add_norms_first(self, b: Builder, x: Rows) -> Rows:
        residual: Rows | None = None
        for layer, norm in self.parts:
            # only the first layer may lack a norm
            rows = self._add_norm(b, x, norm, residual) if norm else x
            residual = layer.build(b, rows, self.memory)
        assert self.output_norm is not None
        return self._add_norm(b, x, self.output_norm, residual)

    def _program(self, n: int, progress: CompileProgress | None = None) -> tuple[Program, Rows]:
        """The program for n tokens: the smallest of a few sizes that fits."""
        narrow = gemm.tiles(host())[0].cols
        size = next((size for size in (GEMV_COLUMNS, narrow, PASS_TOKENS) if n <= size), self.n_most)
        if size not in self._programs:
            program, x = self._build(size)
            kernels = dict.fromkeys([execute.EXECUTE, *program.kernels])
            start = time.perf_counter()
            compile_kernels([k for k in kernels if not k.ready], progress)
            self.compile_seconds += time.perf_counter() - start
            program.link()
            self._programs[size] = program, x
        return self._programs[size]

    @property
    def working_bytes(self) -> int:
        """Bytes of the arenas of the passes so far, without the weights."""
        return sum(program.arena.nbytes for program, _ in self._programs.values())

    # --- running ---
    def passes(self, lengths: Sequence[int]) -> Iterator[range]:
        """Index ranges of the texts that share a pass: neighbours, as many as fit."""
        first = total = 0
        for i, n in enumerate(lengths):
            if i > first and (total + n > PASS_TOKENS or i - first == PASS_TEXTS):
                yield range(first, i)
                first, total = i, 0
            total += n
        if first < len(lengths):
            yield range(first, len(lengths))

    def encode(self, texts: Sequence[Sequence[int]], seconds: Sequence[int] = ()) -> list[np.ndarray]:
        """The rows of each text's tokens after the last layer, f32 [n, n_embd], in one pass (see `passes`).

        seconds: for each text, the index at which the second text of a pair begins; empty: there are no pairs.

        No text may be empty or longer than n_ctx; tokens must be of the vocabulary.
        """
        total = sum(map(len, texts))
        assert 0 < len(texts) <= PASS_TEXTS
        assert all(0 < len(text) <= self.n_ctx for text in texts)
        if total > self.n_most:
            self._make_batch(round_up(total, PASS_TOKENS))
        c, first, page = self._control, 0, 0
        for i, text in enumerate(texts):
            n = len(text)
            part, pages = slice(first, first + n), pages_of(n)
            c["tokens"][part], c["pos"][part], c["last"][part], c["slot"][part] = text, np.arange(n), n - 1, i
            c["near"][part] = np.minimum(np.arange(n) + self.family.half_window(self.hparams), n - 1)
            c["types"][part] = self._types_of(n, seconds[i]) if seconds else 0
            self.memory.attention.table[i, :pages] = np.arange(page, page + pages)
            first, page = first + n, page + pages
        c["ctl"][0] = total
        c["all_tokens"][:4] = (1, 0, 0, total)
        program, rows = self._program(total)
        self._pool = self._pool or Pool(self.n_threads, self._cpus, self._nodes)
        self._pool.run(program, stoppable=True)
        states = program.view(rows, total).copy()
        return np.split(states, np.cumsum([len(text) for text in texts])[:-1])

    def _types_of(self, n: int, second: int) -> np.ndarray | int:
        return np.arange(n) >= second if self.types is not None and self.types.rows > 1 else 0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.gguf.release_all()
