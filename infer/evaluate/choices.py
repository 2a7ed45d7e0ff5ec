"""Multiple-choice tests: selects tasks, and scores the candidate answers of each.

A task is a list of texts, of which parts are scored; HellaSwag, Winogrande and multiple choice differ in their files
and in which tokens of a text count. Common prefixes are computed once, also across tasks that are scored together.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..model import LoadedModel, Work, measured
from .parts import Measurable, each
from .shared import eval_shared
from .windows import check_finite, check_not_even, log_likelihood

T = TypeVar("T")

TOGETHER = 32  # texts read together: more hardly fill the passes better, and each needs a state


@dataclass(frozen=True)
class Ending:
    """A candidate answer of a task: the tokens of the whole text, and which of them are scored."""

    ids: Sequence[int]
    scored: range
    """Not empty; begins at 1 or later, because the first token is not predicted."""


@dataclass(frozen=True, eq=False)
class ScoredTask:
    """The scores of a task."""

    means: np.ndarray
    """Mean log p of every candidate's scored tokens, f64 [candidates]."""
    n_tokens: int
    """Tokens of all its texts."""
    n_processed: int
    """Tokens that went through the model for it, without prefixes shared with an earlier text."""


def encoded(model: Measurable, text: str) -> list[int]:
    """The tokens of a text. Raises UsageError when they do not fit the context."""
    ids = model.tokenizer.encode(text)
    if len(ids) > model.n_ctx:
        raise UsageError(f"a task has {len(ids)} tokens, the context {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
    return ids


def common_prefix(texts: Sequence[Sequence[int]]) -> int:
    """Length of the common prefix of all texts, at most one less than the shortest text."""
    most = min(map(len, texts)) - 1
    return next((i for i in range(most) if len({ids[i] for ids in texts}) > 1), most)


def after_common_prefix(texts: Sequence[Sequence[int]]) -> list[Ending]:
    """Texts as candidates, scored after the common prefix of all. Raises UsageError if they have none."""
    first = common_prefix(texts)
    if first < 1:
        raise UsageError("a context is needed before the endings: this one has no tokens.")
    return [Ending(ids, range(first, len(ids))) for ids in texts]


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that are scored together. first: number of the first task, from 0; n_together: limit on texts at a time."""

    first: int
    tasks: Sequence[Sequence[Ending]]
    n_together: int


def score(model: Measurable, tasks: Iterable[Sequence[Ending]]) -> Iterator[ScoredTask]:
    """Score tasks in order, as many together as the model has sequences for. A task with more candidates is scored in
    parts.

    Raises FormatError when the model's logits are not finite, or all zero.
    """
    n_together = model.n_free or 1  # with 0 free, opening a sequence raises the error
    for scored in each(model, score_group, _grouped(tasks, n_together)):
        yield from scored


def _grouped(tasks: Iterable[Sequence[Ending]], n_together: int) -> Iterator[TaskGroup]:
    group: list[Sequence[Ending]] = []
    first = 0
    for task in tasks:
        if group and sum(map(len, group)) + len(task) > n_together:
            yield TaskGroup(first, group, n_together)
            first += len(group)
            group = []
        group.append(task)
    if group:
        yield TaskGroup(first, group, n_together)


def score_group(model: LoadedModel, group: TaskGroup) -> list[ScoredTask]:
    """The scores of a group's tasks. Raises FormatError as `score`."""
    flat = [candidate for task in group.tasks for candidate in task]
    means: list[float] = []
    processed: list[int] = []
    for begin in range(0, len(flat), group.n_together):
        part = flat[begin : begin + group.n_together]
        means += _means(model, part)
        # the last scored token is only predicted
        read = [c.ids[: c.scored.stop - 1] for c in part]
        processed += [len(ids) - max((_alike(ids, e) for e in read[:i]), default=0) for i, ids in enumerate(read)]
    at = 0
    scored = []
    for number, task in enumerate(group.tasks, group.first + 1):
        mine = slice(at, at := at + len(task))
        scores = np.array(means[mine])
        check_finite(model, scores, f"its logits in task {number}")
        check_not_even(model, -scores, f"its logits in task {number}")
        scored.append(ScoredTask(scores, sum(len(c.ids) for c in task), sum(processed[mine])))
    return scored


def _means(model: LoadedModel, candidates: Sequence[Ending]) -> list[float]:
    with measured(model, len(candidates)) as seqs:
        works = [
            Work(seq, c.ids[: c.scored.stop - 1], slice(c.scored.start - 1, None))
            for seq, c in zip(seqs, candidates, strict=True)
        ]
        means = []
        for c, result in zip(candidates, eval_shared(model, works), strict=True):
            assert result.logits is not None
            means.append(float(log_likelihood(result.logits, c.ids[c.scored.start : c.scored.stop]).mean()))
        return means


def _alike(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of a and b."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def some_of(tasks: Sequence[T], n: int | None) -> list[T]:
    """n tasks in the order in which llama-perplexity samples them; all in their own order if there are not more than n.

    llama-perplexity uses std::mt19937 with seed 1, and multiplies in f32. Not for HellaSwag, whose tasks it samples
    with a distribution that depends on the C++ library.
    """
    if n is None or n >= len(tasks):
        return list(tasks)
    numbers = np.random.RandomState(1).randint(0, 1 << 32, size=n, dtype=np.uint32).astype(np.float32)
    left, drawn = list(tasks), []
    for share in numbers * np.float32(2**-32):
        at = min(int(share * np.float32(len(left))), len(left) - 1)  # numbers near 2^32 round to it
        drawn.append(left[at])
        left[at] = left[-1]
        left.pop()
    return drawn


def standard_error(share: float, n: int) -> float | None:
    """Standard error of the share p of right answers among n: sqrt(p (1 - p) / (n - 1)), as in llama-perplexity; None
    for n = 1."""
    return math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else None
