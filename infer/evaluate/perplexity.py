"""Perplexity of a text, by the protocols of llama-perplexity, so that figures can be compared.

The text is tokenized once, with BOS in front if the model adds one. Chunk i is tokens [i * n_ctx, (i + 1) * n_ctx),
its first token replaced by BOS if the model adds one; an incomplete last chunk is dropped. Each chunk is a separate
sequence. Only its second half is scored, so that every prediction has at least n_ctx / 2 tokens of context: position j
predicts token j + 1 for j = n_ctx // 2 .. n_ctx - 2, which makes n_ctx - n_ctx // 2 - 1 scores per chunk.

    PPL = exp(mean nll)        +/- PPL * sqrt(variance of the nlls / (scores - 1))

With a stride, windows of n_ctx + stride // 2 tokens start every `stride` tokens and the last `stride` predictions of
each are scored. BOS replaces no token there: llama-perplexity intends to, but only after it has evaluated the window.
Its window is also rounded up to a multiple of 256 by its context, and grows with -b; with `-c 512 -b 512 --ppl-stride
512` both programs do the same.

By position, every token of a chunk but the first is scored, and averaged with the tokens at the same position in other
chunks. The figures of the whole text still count the second halves alone.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from hybrid.quant.ggml.errors import UsageError

from ..text.encode import document_ids
from .parts import Measurable
from .positions import PositionBucket, Positions
from .windows import (
    LEAST_CONTEXT,
    Window,
    WindowSums,
    check_length,
    chunked,
    exp_or_inf,
    score_windows,
    strided,
)


@dataclass(frozen=True)
class PerplexityResult:
    """The perplexity of a text; `ppl` is exp(mean_nll)."""

    ppl: float
    stderr: float
    """Standard error of `ppl`; 0 when the scores do not vary or there is only one."""
    mean_nll: float
    """Nats per token."""
    n_tokens: int
    """Tokens of the text, including BOS."""
    n_scored: int
    n_chunks: int
    n_ctx: int
    stride: int
    n_parallel: int
    """Chunks evaluated together."""
    seconds: float
    """Wall time of the evaluation, without loading the model and tokenizing the text."""
    running: tuple[float, ...]
    """The estimate after each chunk."""
    by_position: tuple[PositionBucket, ...] = ()
    """By the number of tokens before the predicted one; empty without n_buckets."""

    @property
    def tokens_per_second(self) -> float:
        window = self.n_ctx + self.stride // 2
        return self.n_chunks * window / self.seconds if self.seconds else 0.0


def perplexity(
    model: Measurable,
    text: str | Sequence[int],
    *,
    n_ctx: int = 512,
    n_batch: int | None = None,
    chunks: int | None = None,
    stride: int = 0,
    n_buckets: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> PerplexityResult:
    """Perplexity of a text. text: a str, or its tokens, which then include BOS if the model adds one.

    As many chunks are evaluated together as the model has sequences, at most n_batch // n_ctx if n_batch is given.
    n_buckets: of `by_position`; 0: not computed.
    progress(chunk from 1, chunks in all, estimate so far). Raises UsageError when the text is too short, FormatError
    when the model's logits are not finite.
    """
    tokens = document_ids(model.tokenizer, text) if isinstance(text, str) else list(text)
    window = n_ctx + stride // 2
    _check(model, n_ctx, stride, chunks, len(tokens))
    if n_buckets and stride:
        raise UsageError("figures by position need adjacent chunks: leave out the stride.")
    windows = strided(tokens, window, stride) if stride else chunked(model.tokenizer, tokens, n_ctx)
    n_chunks = -(-(len(tokens) - window) // stride) if stride else len(tokens) // n_ctx
    if chunks is not None and chunks > 0:
        n_chunks = min(chunks, n_chunks)
    n_parallel = min(model.n_seq_max, n_chunks)
    if n_batch is not None:
        n_parallel = max(1, min(n_parallel, n_batch // n_ctx))

    positions = Positions(n_ctx, n_buckets) if n_buckets else None
    if positions is not None:
        windows = (Window(window.ids, 0) for window in windows)

    total, squares, n_scored = 0.0, 0.0, 0
    running: list[float] = []
    start = time.perf_counter()
    for nll in score_windows(model, islice(windows, n_chunks), n_parallel):
        if positions is not None:
            positions.add(nll)
            nll = nll[n_ctx // 2 :]
        total += float(nll.sum())
        squares += float((nll * nll).sum())
        n_scored += nll.size
        running.append(exp_or_inf(total / n_scored))
        if progress is not None:
            progress(len(running), n_chunks, running[-1])
    of = WindowSums(total, squares, n_scored)
    return PerplexityResult(
        of.ppl, of.stderr, of.mean_nll, len(tokens), n_scored, n_chunks, n_ctx, stride, n_parallel,
        time.perf_counter() - start, tuple(running), positions.buckets() if positions is not None else (),
    )  # fmt: skip


def _check(model: Measurable, n_ctx: int, stride: int, chunks: int | None, n_tokens: int) -> None:
    window = n_ctx + stride // 2
    if n_ctx < LEAST_CONTEXT:
        raise UsageError(f"a context of {n_ctx} tokens: perplexity needs at least {LEAST_CONTEXT}.")
    if stride < 0 or stride >= window:
        raise UsageError(f"stride = {stride}: expected 0 or a number below {2 * n_ctx}.")
    if chunks == 0:
        raise UsageError("chunks = 0: at least 1 is needed. Leave it out to use the whole text.")
    if window - 1 > model.n_ctx:
        raise UsageError(
            f"a context of {n_ctx} tokens: a chunk has {window} tokens, the model was loaded for {model.n_ctx}."
        )
    check_length(n_tokens, n_ctx, 2 * window, 0 if stride else n_tokens // 2)
