"""Perplexity of a text, by the protocols of llama.cpp's llama-perplexity, so that figures can be compared.

The text is tokenized once, with BOS in front if the model adds one. Chunk i is tokens [i * n_ctx, (i + 1) * n_ctx),
its first token replaced by BOS if the model adds one; an incomplete last chunk is dropped. Each chunk is a sequence of
its own. Only its second half is scored, so that every prediction has at least n_ctx / 2 tokens of context: position j
predicts token j + 1 for j = n_ctx // 2 .. n_ctx - 2, which makes n_ctx - n_ctx // 2 - 1 scores per chunk.

    PPL = exp(mean nll)        +/- PPL * sqrt(variance of the nlls / (scores - 1))

With a stride, windows of n_ctx + stride // 2 tokens start every `stride` tokens and the last `stride` predictions of
each are scored. No BOS is put in there: llama-perplexity means to, but does so after it has evaluated the window. Its
window is then rounded up to a multiple of 256 by its context, and grows with -b; `-c 512 -b 512 --ppl-stride 512` is a
case in which both sides do the same.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UsageError

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True)
class Window:
    """Tokens evaluated from an empty memory; position j predicts token j + 1 for j = first .. len(ids) - 2."""

    ids: Sequence[int]
    first: int


@dataclass(frozen=True)
class PerplexityResult:
    """What a text was measured to be; `ppl` is exp(mean_nll)."""

    ppl: float
    stderr: float
    """Standard error of `ppl`; 0 when the scores do not vary or there is only one."""
    mean_nll: float
    """Nats per token."""
    n_tokens: int
    """Tokens of the text, BOS included."""
    n_scored: int
    n_chunks: int
    n_ctx: int
    stride: int
    n_parallel: int
    """Chunks evaluated together."""
    seconds: float
    """Wall time of the evaluation, without loading and tokenizing."""
    running: tuple[float, ...]
    """The estimate after each chunk."""

    @property
    def tokens_per_second(self) -> float:
        window = self.n_ctx + self.stride // 2
        return self.n_chunks * window / self.seconds if self.seconds else 0.0


def perplexity(
    model: "Model",
    text: str | Sequence[int],
    *,
    n_ctx: int = 512,
    n_batch: int | None = None,
    chunks: int | None = None,
    stride: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> PerplexityResult:
    """Perplexity of `text`, or of its tokens if they are given (then with BOS where it belongs).

    As many chunks are evaluated together as the model has sequences, at most n_batch // n_ctx if that is given.
    progress(chunk from 1, chunks in all, estimate so far). UsageError when the text is too short, FormatError when the
    model's logits are no numbers.
    """
    tokens = tokens_of(model, text) if isinstance(text, str) else list(text)
    window = n_ctx + stride // 2
    _check(model, n_ctx, stride, chunks, len(tokens))
    windows = _strided(tokens, window, stride) if stride else _chunks(tokens, n_ctx, _bos(model))
    n_chunks = -(-(len(tokens) - window) // stride) if stride else len(tokens) // n_ctx
    if chunks is not None and chunks > 0:
        n_chunks = min(chunks, n_chunks)
    n_parallel = min(model.memory.n_seq_max, n_chunks)
    if n_batch is not None:
        n_parallel = max(1, min(n_parallel, n_batch // n_ctx))

    total, total2, n_scored = 0.0, 0.0, 0
    running: list[float] = []
    start = time.perf_counter()
    scores = score_windows(model, (w for w, _ in zip(windows, range(n_chunks), strict=False)), n_parallel)
    for nll in scores:
        total += float(nll.sum())
        total2 += float((nll * nll).sum())
        n_scored += nll.size
        if not math.isfinite(total):
            chunk = len(running) + 1
            raise FormatError(
                f"{model.path.name}: its logits in chunk {chunk} are not finite. Convert or copy it again."
            )
        running.append(_exp(total / n_scored))
        if progress is not None:
            progress(len(running), n_chunks, running[-1])
    mean = total / n_scored
    variance = total2 / n_scored - mean * mean
    stderr = math.sqrt(variance / (n_scored - 1)) * _exp(mean) if variance > 0 and n_scored > 1 else 0.0
    return PerplexityResult(
        _exp(mean), stderr, mean, len(tokens), n_scored, n_chunks, n_ctx, stride, n_parallel,
        time.perf_counter() - start, tuple(running),
    )  # fmt: skip


def score_windows(model: "Model", windows: Iterable[Window], n_parallel: int = 1) -> Iterator[np.ndarray]:
    """The negative log-likelihoods of each window's scored tokens, f64 [scores], in order; `n_parallel` at a time."""
    from ..sequence import Work, measured

    remaining = iter(windows)
    while group := list(islice(remaining, n_parallel)):
        with measured(model, len(group)) as seqs:
            works = []
            for seq, window in zip(seqs, group, strict=True):
                # the last token is only predicted, never evaluated
                ids, targets = window.ids[:-1], window.ids[window.first + 1 :]
                works.append(Work(seq, ids, output=slice(window.first, len(ids)), targets=targets))
            results = model.eval(works)
        for result in results:
            assert result.nll is not None
            yield result.nll


def tokens_of(model: "Model", text: str) -> list[int]:
    """The text's tokens, with BOS in front if the model adds one."""
    tokens: list[int] = model.tokenizer.encode(text, add_special=False)
    bos = _bos(model)
    return tokens if bos is None else [bos, *tokens]


def _bos(model: "Model") -> int | None:
    """The token that starts a sequence, if this model adds one."""
    bos: int | None = model.tokenizer.bos
    return bos if model.tokenizer.add_bos else None


def _chunks(tokens: list[int], n_ctx: int, bos: int | None) -> Iterator[Window]:
    for start in range(0, len(tokens) - n_ctx + 1, n_ctx):
        ids = tokens[start : start + n_ctx]
        if bos is not None:
            ids[0] = bos
        yield Window(ids, n_ctx // 2)


def _strided(tokens: list[int], window: int, stride: int) -> Iterator[Window]:
    for start in range(0, len(tokens) - window, stride):
        yield Window(tokens[start : start + window], window - stride - 1)


def _check(model: "Model", n_ctx: int, stride: int, chunks: int | None, n_tokens: int) -> None:
    window = n_ctx + stride // 2
    if n_ctx < 4:
        raise UsageError(f"-c {n_ctx}: perplexity needs a context of at least 4 tokens.")
    if stride < 0 or stride >= window:
        raise UsageError(f"--stride {stride}: expected 0 or a number below {2 * n_ctx}.")
    if chunks == 0:
        raise UsageError("--chunks 0: at least 1 chunk is needed. Leave it out to use the whole text.")
    if window - 1 > model.n_ctx:
        raise UsageError(f"-c {n_ctx}: a chunk has {window} tokens, the model was loaded for {model.n_ctx}.")
    if n_tokens < 2 * window:
        shorter = f" or a context of at most {n_tokens // 2} (-c)" if n_tokens >= 8 and not stride else ""
        raise UsageError(
            f"the text has {n_tokens} tokens, a context of {n_ctx} needs at least {2 * window}. "
            f"Give a longer text{shorter}."
        )


def _exp(x: float) -> float:
    """exp, infinite instead of an exception: random weights can be that wrong."""
    return math.exp(x) if x < 700 else math.inf
