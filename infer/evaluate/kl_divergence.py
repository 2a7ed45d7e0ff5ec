"""How far a model's predictions are from another's: KL divergence of its distributions from those kept in a file.

The file is llama-perplexity's (`--kl-divergence-base`), readable both ways; so are protocol and statistics:

    "_logits_", i32 n_ctx, i32 n_vocab, i32 n_chunk, i32 tokens [n_chunk * n_ctx], then for every scored token, chunk
    after chunk, f32 scale, f32 least, u16 q [n_vocab rounded up to an even number]: log p = scale * q + least

log p is cut off 16 below the largest. Chunks and scored positions are those of `perplexity`.
"""

import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np

from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError, shown
from hybrid.quant.ggml.replacing import Replacement, failures_named

from .kl_statistics import KLDivergenceResult, KLDivergenceSoFar, Running, ScoredTokens, summary
from .windows import check_length, chunked, exp_or_inf, log_softmax, log_sum_exp, score_logits

if TYPE_CHECKING:
    from ..model import Model

MAGIC = b"_logits_"
_COUNTS = struct.Struct("<iii")
RANGE = np.float32(16)  # of log p below the largest


class BaseWriter:
    """Writes a base file that appears when it is complete. Use it in a `with`. HybridError names what fails."""

    def __init__(self, path: Path | str, tokens: Sequence[int], n_ctx: int, n_vocab: int) -> None:
        self._path = Path(path)
        n_chunks = len(tokens) // n_ctx
        self._head = MAGIC + _COUNTS.pack(n_ctx, n_vocab, n_chunks) + np.array(tokens, "<i4").tobytes()
        self._target = Replacement(path)
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        with failures_named(self._path):
            self._file = self._target.open()
        try:
            with failures_named(self._path):
                self._file.write(self._head)
        except BaseException:
            self._target.discard()
            raise
        return self

    def add(self, logits: np.ndarray) -> None:
        """The scored tokens of the next chunk, f32 [scores, n_vocab]."""
        assert self._file is not None
        with failures_named(self._path):
            self._file.write(encode(logits).tobytes())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with failures_named(self._path):
            self._target.__exit__(kind, error, traceback)


class BaseFile:
    """A base file, mapped. FormatError when the file is another kind or cut off, UsageError when it cannot be read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
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
        self._start = len(head) + 4 * self.n_ctx * self.n_chunks
        self._width = 4 + self.n_vocab + self.n_vocab % 2
        need = self._start + 2 * self._width * self.n_scores * self.n_chunks
        if size < need:
            raise FormatError(f"{shown(path)} is cut off: it has {size} bytes of {need}. Make it again.")
        self.tokens = np.fromfile(self.path, "<i4", self.n_ctx * self.n_chunks, offset=len(head))

    def chunk(self, i: int) -> np.ndarray:
        """ln p of the scored tokens of a chunk, f32 [scores, n_vocab]."""
        count = self._width * self.n_scores
        raw = np.fromfile(self.path, "<u2", count, offset=self._start + 2 * count * i).reshape(self.n_scores, -1)
        return decode(raw, self.n_vocab)


def encode(logits: np.ndarray) -> np.ndarray:
    """logits f32 [n, n_vocab] -> u16 [n, 4 + n_vocab rounded up to even] of ln p. As llama-perplexity, in f32."""
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
    """The reverse of `encode`: ln p f32 [n, n_vocab]."""
    scale, least = np.ascontiguousarray(rows[:, :4]).view("<f4").T
    return rows[:, 4 : 4 + n_vocab] * scale[:, None] + least[:, None]


def write_base(
    model: "Model",
    path: Path | str,
    tokens: Sequence[int],
    n_ctx: int,
    *,
    chunks: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> int:
    """Writes the base file of `model` on these tokens (with BOS where it belongs), returns the number of chunks.

    progress(chunk from 1, chunks in all, perplexity so far). UsageError when the text has less than two chunks,
    FormatError when the model's logits are not finite.
    """
    check_length(len(tokens), n_ctx, 2 * n_ctx, len(tokens) // 2)
    n_chunks = min(len(tokens) // n_ctx, chunks or len(tokens))
    tokens = tokens[: n_chunks * n_ctx]
    nll, scored = 0.0, 0
    windows = list(chunked(model.tokenizer, tokens, n_ctx))
    with BaseWriter(path, tokens, n_ctx, model.n_vocab) as writer:
        for i, (window, logits) in enumerate(zip(windows, score_logits(model, windows), strict=True)):
            writer.add(logits)
            ln_p = log_softmax(logits)[np.arange(len(window.targets)), window.targets]
            nll, scored = nll - float(ln_p.sum(dtype=np.float64)), scored + len(window.targets)
            if progress:
                progress(i + 1, n_chunks, exp_or_inf(nll / scored))
    return n_chunks


def compare(logits: np.ndarray, base: np.ndarray, targets: np.ndarray) -> ScoredTokens:
    """logits, base (ln p) f32 [n, n_vocab], targets [n]."""
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
    model: "Model",
    base: BaseFile,
    *,
    chunks: int | None = None,
    progress: Callable[[int, int, KLDivergenceSoFar], None] | None = None,
) -> KLDivergenceResult:
    """Evaluates the file's tokens with `model`; progress(chunk from 1, chunks in all, estimates so far).

    UsageError when the two vocabularies differ, FormatError when the model's logits are not finite.
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
    windows = list(chunked(model.tokenizer, base.tokens.tolist(), base.n_ctx, end=n_chunks))
    parts: list[ScoredTokens] = []
    running = Running()
    for i, logits in enumerate(score_logits(model, windows)):
        parts.append(compare(logits, base.chunk(i), np.array(windows[i].targets)))
        running.add(parts[-1])
        if progress:
            progress(i + 1, n_chunks, running.so_far())
    return summary(parts, base.n_ctx, time.perf_counter() - began)
