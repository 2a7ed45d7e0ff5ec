"""Cuts texts into windows, evaluates each from an empty memory, and computes log-likelihoods of the logits.

Shared by perplexity, KL divergence, importance matrices, sensitivities and multiple-choice tests: how a text is cut,
how many windows go through the layers together, the log-softmax, and the checks of logits.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UsageError

from ..text.encode import sequence_start
from .parts import Measurable, each

if TYPE_CHECKING:
    from ..model import LoadedModel
    from ..runner import Result, Work
    from ..sequence import Sequence as TokenSequence
    from ..text.tokenizer import Tokenizer

LEAST_CONTEXT = 4  # tokens of a chunk; fewer are not accepted


@dataclass(frozen=True)
class Window:
    """Tokens evaluated from an empty memory; position j predicts token j + 1 for j = first .. len(ids) - 2."""

    ids: Sequence[int]
    first: int

    @property
    def targets(self) -> Sequence[int]:
        """The tokens that are predicted and scored."""
        return self.ids[self.first + 1 :]

    @property
    def scored(self) -> slice:
        """The positions that predict them. The last token is only predicted, never evaluated."""
        return slice(self.first, len(self.ids) - 1)


# --- a text in windows ---
def chunked(
    tokenizer: "Tokenizer", tokens: Sequence[int], n_ctx: int, begin: int = 0, end: int | None = None
) -> Iterator[Window]:
    """Chunks number begin .. end - 1 (None: all) of n_ctx adjacent tokens each, whose second half is scored.

    If the model adds BOS, it replaces the first token of each chunk, so that a chunk begins as every text of this model
    does. An incomplete last chunk is dropped. Same as in llama-perplexity and llama-imatrix.
    """
    bos = sequence_start(tokenizer)
    n = len(tokens) // n_ctx
    for i in range(begin, n if end is None else min(end, n)):
        ids = list(tokens[i * n_ctx : (i + 1) * n_ctx])
        if bos is not None:
            ids[0] = bos
        yield Window(ids, n_ctx // 2)


def strided(tokens: Sequence[int], length: int, stride: int) -> Iterator[Window]:
    """Windows of `length` tokens that start every `stride` tokens; the last `stride` predictions of each are scored."""
    for start in range(0, len(tokens) - length, stride):
        yield Window(tokens[start : start + length], length - stride - 1)


def check_length(n_tokens: int, n_ctx: int, least: int, largest_ctx: int = 0) -> None:
    """Raise UsageError when a text has less than the `least` tokens that contexts of n_ctx need.

    largest_ctx: largest context for which the text is long enough, for the message; 0: not mentioned.
    """
    if n_tokens < least:
        smaller = f" or a context of at most {largest_ctx} tokens" if largest_ctx >= LEAST_CONTEXT else ""
        raise UsageError(
            f"the text has {n_tokens} tokens, a context of {n_ctx} needs at least {least}. Give a longer text{smaller}."
        )


# --- the pass over them ---
@dataclass(frozen=True)
class WindowGroup:
    """Windows that go through the layers together. first: number of the first window, from 0."""

    first: int
    windows: Sequence[Window]


def grouped(windows: Iterable[Window], n_together: int, first: int = 0) -> Iterator[WindowGroup]:
    """Group windows by `n_together`. first: number of the first window."""
    remaining = iter(windows)
    while group := list(islice(remaining, n_together)):
        yield WindowGroup(first, group)
        first += len(group)


def evaluated(
    model: "LoadedModel",
    group: WindowGroup,
    work: "Callable[[TokenSequence, Window], Work]",
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> "list[Result]":
    """Evaluate the windows of a group, each as a separate sequence. The sequences are closed and not kept.

    work: makes the Work for a window. during(): context manager around the evaluation.
    """
    from ..model import measured

    with measured(model, len(group.windows)) as seqs, during():
        return model.eval([work(seq, window) for seq, window in zip(seqs, group.windows, strict=True)])


def group_nlls(model: "LoadedModel", group: WindowGroup) -> list[np.ndarray]:
    """The negative log-likelihoods of each window's scored tokens, f64 [scores].

    Raises FormatError when they are not finite, or the logits are all zero.
    """
    from ..runner import Work

    def scored(seq: "TokenSequence", window: Window) -> Work:
        return Work(seq, window.ids[:-1], output=window.scored, targets=window.targets)

    nlls = []
    for i, result in enumerate(evaluated(model, group, scored), group.first + 1):
        assert result.nll is not None
        check_finite(model, result.nll, f"its logits in chunk {i}")
        check_not_even(model, result.nll, f"its logits in chunk {i}")
        nlls.append(result.nll)
    return nlls


def group_logits(model: "LoadedModel", group: WindowGroup, changed: str = "") -> list[np.ndarray]:
    """The logits of each window's scored positions, f32 [scores, n_vocab].

    Raises FormatError when they are not finite, or all zero. changed: a weight that differs from the file's, for the
    message.
    """
    from ..runner import Work

    def predicted(seq: "TokenSequence", window: Window) -> Work:
        return Work(seq, window.ids[:-1], output=window.scored)

    where = f" with {changed} changed" if changed else ""
    logits = []
    for i, result in enumerate(evaluated(model, group, predicted), group.first + 1):
        assert result.logits is not None
        check_finite(model, result.logits, f"its logits in chunk {i}{where}")
        check_not_zero(model, result.logits, f"its logits in chunk {i}{where}")
        logits.append(result.logits)
    return logits


def score_windows(model: Measurable, windows: Iterable[Window], n_parallel: int | None = None) -> Iterator[np.ndarray]:
    """`group_nlls` of all windows, in order. n_parallel: windows in a group; None: the model's number of sequences."""
    for nlls in each(model, group_nlls, grouped(windows, n_parallel or model.n_seq_max)):
        yield from nlls


def score_logits(model: "LoadedModel", windows: Iterable[Window], changed: str = "") -> Iterator[np.ndarray]:
    """`group_logits` of all windows, in order; a group has as many as the model has sequences."""
    for group in grouped(windows, model.n_seq_max):
        yield from group_logits(model, group, changed)


def check_finite(model: Measurable, values: np.ndarray, what: str) -> None:
    """Raise FormatError when values are NaN or infinite. what: their name, a plural."""
    if not np.isfinite(values).all():
        raise FormatError(f"{model.path.name}: {what} are not finite. Convert or copy it again.")


def check_not_zero(model: Measurable, logits: np.ndarray, what: str) -> None:
    """Raise FormatError when all logits are zero: a value that overflows is often infinite at first and zero after the
    next norm."""
    if not logits.any():
        raise _all_zero(model, what)


def check_not_even(model: Measurable, nlls: np.ndarray, what: str) -> None:
    """As `check_not_zero`, where only -ln p of some tokens is known: for zero logits each is ln n_vocab."""
    if np.allclose(nlls, math.log(model.n_vocab), rtol=1e-9, atol=0):
        raise _all_zero(model, what)


def _all_zero(model: Measurable, what: str) -> FormatError:
    return FormatError(
        f"{model.path.name}: {what} are all zero, because values in the model overflow. Convert or copy it again."
    )


# --- probabilities ---
def log_sum_exp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln sum exp(x) of every row of x, f32 or f64 [n, n_vocab], in two parts [n, 1] of the same dtype: the largest
    value, and ln sum exp(x - largest), summed in f64.

    Two parts, because the order of subtraction changes the rounding, and both orders must be kept: (x - largest) - rest
    in the files of `kl_divergence`, which have llama-perplexity's bytes, and x - (largest + rest) in published scores.
    """
    largest = x.max(axis=1, keepdims=True)
    return largest, np.log(np.exp(x - largest).sum(axis=1, keepdims=True, dtype=np.float64)).astype(x.dtype)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """ln p of every token, [n, n_vocab], in the dtype of the logits: f32 for figures that llama-perplexity computes in
    f32, f64 for all others."""
    largest, rest = log_sum_exp(logits)
    ln_p: np.ndarray = logits - largest - rest
    return ln_p


def log_likelihood(logits: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """ln p of ids[i] given logits[i], f64 [n], computed in f64."""
    wide = logits.astype(np.float64)
    largest, rest = log_sum_exp(wide)
    ln_p: np.ndarray = wide[np.arange(len(ids)), list(ids)] - (largest + rest)[:, 0]
    return ln_p


def row_log_likelihood(row: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """ln p of each token of `ids` given one row of logits, f32 [n_vocab]. Same bits as `log_likelihood`."""
    wide = row[None].astype(np.float64)
    largest, rest = log_sum_exp(wide)
    ln_p: np.ndarray = wide[0, list(ids)] - (largest + rest)[0, 0]
    return ln_p


def exp_or_inf(x: float) -> float:
    """exp(x); infinity instead of OverflowError, which random weights can cause."""
    return math.exp(x) if x < 700 else math.inf


@dataclass(frozen=True)
class WindowSums:
    """Sums over n scored tokens: `total` of the negative log-likelihoods in nats, `squares` of their squares."""

    total: float
    squares: float
    n: int

    @property
    def mean_nll(self) -> float:
        return self.total / self.n

    @property
    def ppl(self) -> float:
        return exp_or_inf(self.mean_nll)

    @property
    def stderr(self) -> float:
        """Standard error of `ppl`, as in llama-perplexity; 0 when the scores do not vary or there is only one."""
        variance = self.squares / self.n - self.mean_nll * self.mean_nll
        return math.sqrt(variance / (self.n - 1)) * self.ppl if variance > 0 and self.n > 1 else 0.0
