"""KL divergence of a model's predictions from another model's (the base), which are read from a file.

File format (`--kl-divergence-base`), protocol and statistics are the same as in llama-perplexity:

    "_logits_", i32 n_ctx, i32 n_vocab, i32 n_chunk, i32 tokens [n_chunk * n_ctx], then for every scored token, chunk
    after chunk, f32 scale, f32 least, u16 q [n_vocab rounded up to an even number]: log p = scale * q + least

log p is cut off 16 below the largest. Chunks and scored positions are the same as in `perplexity`.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import FormatError, HybridError, Remedy, UsageError, shown
from hybrid.quant.ggml.file_ranges import FileRange, not_seen
from hybrid.quant.ggml.replacing import Replacement, failures_named
from hybrid.quant.ggml.sources import check_source

from .kl_statistics import KLDivergenceResult, KLDivergenceSoFar, Running, ScoredTokens, summary
from .parts import Measurable, SpreadModel, each
from .windows import (
    WindowGroup,
    check_length,
    chunked,
    exp_or_inf,
    group_logits,
    grouped,
    log_softmax,
    log_sum_exp,
)

if TYPE_CHECKING:
    from ..model import LoadedModel

MAGIC = b"_logits_"
_COUNTS = struct.Struct("<iii")
RANGE = np.float32(16)  # log p is cut off this far below the largest


def _row_nbytes(n_vocab: int) -> int:
    return 2 * (4 + n_vocab + n_vocab % 2)


@dataclass(frozen=True)
class BasePlaces:
    """Writes the chunks of a base file: `chunk_nbytes` bytes each, in order, in the range `all`."""

    all: FileRange
    chunk_nbytes: int
    sync: bool
    """Whether `write` returns only when the chunk is on the disk."""

    def write(self, i: int, logits: np.ndarray) -> None:
        """Write the logits of chunk i's scored tokens, f32 [scores, n_vocab]. Raises HybridError if that fails."""
        with self.all.part(i * self.chunk_nbytes, self.chunk_nbytes).opened(sync=self.sync) as filling:
            filling.write(encode(logits))


class BaseWriter:
    """Makes a base file, which appears when it is complete. `with` gives BasePlaces, to write its chunks in any order
    from any process that sees the folder. Raises HybridError."""

    def __init__(
        self, path: Path | str, tokens: Sequence[int], n_ctx: int, n_vocab: int, *, elsewhere: bool = False
    ) -> None:
        """elsewhere: whether other processes write the chunks."""
        self._path, self._sync = Path(path), elsewhere
        self._n_chunks, n_scores = len(tokens) // n_ctx, n_ctx - 1 - n_ctx // 2
        self._chunk_nbytes = _row_nbytes(n_vocab) * n_scores
        self._head = MAGIC + _COUNTS.pack(n_ctx, n_vocab, self._n_chunks) + np.array(tokens, "<i4").tobytes()
        self._target = Replacement(path)

    def __enter__(self) -> BasePlaces:
        nbytes = self._chunk_nbytes * self._n_chunks
        try:
            with failures_named(self._path):
                self._target.open().write(self._head)
                unfinished = self._target.shared(len(self._head) + nbytes)
            # made inside of `try`: an interrupt before the body of `with` would otherwise leave the file
            return BasePlaces(
                FileRange(unfinished, self._path, len(self._head), nbytes), self._chunk_nbytes, self._sync
            )
        except BaseException:
            self._target.discard()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with failures_named(self._path):
            self._target.__exit__(kind, error, traceback)


@dataclass(frozen=True)
class BaseChunks:
    """Reads the chunks of a complete base file, in any process that sees the same file."""

    path: Path
    nbytes: int
    """Size of the file."""
    start: int
    n_vocab: int
    n_scores: int

    def read(self, i: int) -> np.ndarray:
        """See `BaseFile.chunk`. Raises HybridError if this process does not see the same file."""
        nbytes = _row_nbytes(self.n_vocab) * self.n_scores
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno()).st_size
                raw = np.fromfile(file, "<u2", nbytes // 2, offset=self.start + nbytes * i)
        except FileNotFoundError:
            raise not_seen(self.path) from None
        except OSError as error:
            raise HybridError(f"{shown(self.path)} cannot be read: {error.strerror}.") from error
        if found != self.nbytes:
            raise HybridError(f"{shown(self.path)} has {found} bytes here, not the {self.nbytes} that it had before.")
        return decode(raw.reshape(self.n_scores, -1), self.n_vocab)


class BaseFile:
    """A base file to compare with.

    Raises FormatError when the file is of another kind or cut off, UsageError when it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            check_source(self.path, "a base file")
            with self.path.open("rb") as f:
                head = f.read(len(MAGIC) + _COUNTS.size)
            size = self.path.stat().st_size
        except OSError as error:
            raise UsageError(
                f"{shown(path)} cannot be read: {error.strerror}.", remedy=Remedy.KL_DIVERGENCE_BASE
            ) from None
        if len(head) < len(MAGIC) + _COUNTS.size or not head.startswith(MAGIC):
            raise FormatError(f"{shown(path)} holds no log-probabilities.", remedy=Remedy.KL_DIVERGENCE_BASE)
        self.n_ctx, self.n_vocab, self.n_chunks = _COUNTS.unpack(head[len(MAGIC) :])
        if min(self.n_ctx - 3, self.n_vocab, self.n_chunks) < 1:
            raise FormatError(f"{shown(path)} is damaged: it says {self.n_chunks} chunks of {self.n_ctx} tokens.")
        self.n_scores = self.n_ctx - 1 - self.n_ctx // 2
        start = len(head) + 4 * self.n_ctx * self.n_chunks
        need = start + _row_nbytes(self.n_vocab) * self.n_scores * self.n_chunks
        if size < need:
            raise FormatError(f"{shown(path)} is cut off: it has {size} bytes of {need}. Make it again.")
        self.tokens = np.fromfile(self.path, "<i4", self.n_ctx * self.n_chunks, offset=len(head))
        self.chunks = BaseChunks(self.path.resolve(), size, start, self.n_vocab, self.n_scores)

    def chunk(self, i: int) -> np.ndarray:
        """ln p at the scored tokens of a chunk, f32 [scores, n_vocab]."""
        return self.chunks.read(i)


def encode(logits: np.ndarray) -> np.ndarray:
    """logits f32 [n, n_vocab] -> ln p in the file's format, u16 [n, 4 + n_vocab rounded up to even]. In f32, as
    llama-perplexity does."""
    n_vocab = logits.shape[1]
    most, log_sum = log_sum_exp(logits)
    least = np.maximum(logits.min(axis=1, keepdims=True), most - RANGE)
    scale = (most - least) / np.float32(65535)
    out = np.zeros((len(logits), 4 + n_vocab + n_vocab % 2), "<u2")
    out[:, :4] = np.concatenate([scale, least - most - log_sum], axis=1).astype("<f4").view("<u2")
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    above = np.maximum(logits - least, 0)
    above *= inverse
    out[:, 4 : 4 + n_vocab] = np.rint(above)
    return out


def decode(rows: np.ndarray, n_vocab: int) -> np.ndarray:
    """Inverse of `encode`: ln p f32 [n, n_vocab]."""
    scale, least = np.ascontiguousarray(rows[:, :4]).view("<f4").T
    likelihoods: np.ndarray = rows[:, 4 : 4 + n_vocab] * scale[:, None] + least[:, None]
    return likelihoods


def write_base(
    model: Measurable,
    path: Path | str,
    tokens: Sequence[int],
    n_ctx: int,
    *,
    chunks: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> int:
    """Write the base file of `model` for these tokens (with BOS if the model adds one); returns the number of chunks.

    progress(chunk from 1, chunks in all, perplexity so far). Raises UsageError when the text has less than two chunks,
    FormatError when the model's logits are not finite.
    """
    check_length(len(tokens), n_ctx, 2 * n_ctx, len(tokens) // 2)
    n_chunks = min(len(tokens) // n_ctx, chunks or len(tokens))
    tokens = tokens[: n_chunks * n_ctx]
    nll, scored, done = 0.0, 0, 0
    groups = grouped(chunked(model.tokenizer, tokens, n_ctx), model.n_seq_max)
    with BaseWriter(path, tokens, n_ctx, model.n_vocab, elsewhere=isinstance(model, SpreadModel)) as places:
        for sums in each(model, partial(_written, places), groups):
            for ln_p, n_scored in sums:
                nll, scored, done = nll - ln_p, scored + n_scored, done + 1
                if progress:
                    progress(done, n_chunks, exp_or_inf(nll / scored))
    return n_chunks


def _written(places: BasePlaces, model: "LoadedModel", group: WindowGroup) -> list[tuple[float, int]]:
    """Write the logits of each window; returns the sum of ln p of its targets, and their number."""
    sums = []
    for i, (window, logits) in enumerate(zip(group.windows, group_logits(model, group), strict=True), group.first):
        places.write(i, logits)
        ln_p = log_softmax(logits)[np.arange(len(window.targets)), window.targets]
        sums.append((float(ln_p.sum(dtype=np.float64)), len(window.targets)))
    return sums


def compare(logits: np.ndarray, base: np.ndarray, targets: np.ndarray) -> ScoredTokens:
    """Compare two models at n tokens. logits: f32 [n, n_vocab]; base: ln p, f32 [n, n_vocab]; targets: [n]."""
    most, log_sum = log_sum_exp(logits)
    ln_p = logits - (most + log_sum)
    rows = np.arange(len(targets))
    p_base = np.exp(base)
    p_base[base <= -RANGE] = 0
    kld = (p_base * (base - ln_p)).sum(axis=1, dtype=np.float64)
    nll, nll_base = -ln_p[rows, targets].astype(np.float64), -base[rows, targets].astype(np.float64)
    same = logits.argmax(axis=1) == base.argmax(axis=1)
    return ScoredTokens(nll, nll_base, kld, np.exp(-nll) - np.exp(-nll_base), same)


def kl_divergence(
    model: Measurable,
    base: BaseFile,
    *,
    chunks: int | None = None,
    progress: Callable[[int, int, KLDivergenceSoFar], None] | None = None,
) -> KLDivergenceResult:
    """Evaluate the file's tokens with `model`. progress(chunk from 1, chunks in all, estimates so far).

    Raises UsageError when the two vocabularies differ in size, FormatError when the model's logits are not finite.
    """
    if base.n_vocab != model.n_vocab:
        raise UsageError(
            f"{shown(base.path)} is of a model with {base.n_vocab} tokens, this one has {model.n_vocab}. "
            "Only models with the same vocabulary can be compared."
        )
    if not (base.tokens.min() >= 0 and base.tokens.max() < model.n_vocab):
        raise FormatError(f"{shown(base.path)} holds tokens that are not of the vocabulary. Make it again.")
    began = time.perf_counter()
    n_chunks = min(base.n_chunks, chunks or base.n_chunks)
    windows = chunked(model.tokenizer, base.tokens.tolist(), base.n_ctx, end=n_chunks)
    parts: list[ScoredTokens] = []
    running = Running()
    for compared in each(model, partial(_compared, base.chunks), grouped(windows, model.n_seq_max)):
        for part in compared:
            parts.append(part)
            running.add(part)
            if progress:
                progress(len(parts), n_chunks, running.so_far())
    return summary(parts, base.n_ctx, time.perf_counter() - began)


def _compared(base: BaseChunks, model: "LoadedModel", group: WindowGroup) -> list[ScoredTokens]:
    windows = zip(group.windows, group_logits(model, group), strict=True)
    return [compare(logits, base.read(i), np.array(w.targets)) for i, (w, logits) in enumerate(windows, group.first)]
