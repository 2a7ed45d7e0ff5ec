"""Tests with answers to choose from: which tasks are asked, and the scores of what one of them can be answered with.

A task is some texts, of which parts are scored; HellaSwag, Winogrande and multiple choice differ in what their files
hold and in which tokens of a text count. What texts begin with alike is computed once, also among the tasks that are
scored together.
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

TOGETHER = 32  # texts: more of them hardly fill the passes better, and each needs a state


@dataclass(frozen=True)
class Ending:
    """A text that would answer a task: its tokens, and which of them are scored."""

    ids: Sequence[int]
    scored: range
    """Not empty; begins at 1 or later, because the first token is not predicted."""


@dataclass(frozen=True, eq=False)
class ScoredTask:
    """What a task was scored."""

    means: np.ndarray
    """Mean log p of every candidate's scored tokens, f64 [candidates]."""
    n_tokens: int
    """Of all its texts."""
    n_processed: int
    """Tokens that went through the model for it: without those that a text shares with one before it."""


def encoded(model: Measurable, text: str) -> list[int]:
    """The tokens of a text. UsageError when they do not fit the context."""
    ids = model.tokenizer.encode(text)
    if len(ids) > model.n_ctx:
        raise UsageError(f"a task has {len(ids)} tokens, the context {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
    return ids


def common_prefix(texts: Sequence[Sequence[int]]) -> int:
    """Tokens that all texts begin with; every text has at least one more."""
    most = min(map(len, texts)) - 1
    return next((i for i in range(most) if len({ids[i] for ids in texts}) > 1), most)


def after_common_prefix(texts: Sequence[Sequence[int]]) -> list[Ending]:
    """Texts of which everything is scored that they do not all begin with."""
    first = common_prefix(texts)
    if first < 1:
        raise UsageError("a context is needed before the endings: this one has no tokens.")
    return [Ending(ids, range(first, len(ids))) for ids in texts]


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that are scored together; first: the number of the first, from 0; n_together: texts at a time."""

    first: int
    tasks: Sequence[Sequence[Ending]]
    n_together: int


def score(model: Measurable, tasks: Iterable[Sequence[Ending]]) -> Iterator[ScoredTask]:
    """Scores tasks in order, as many together as the model has sequences for; a task with more candidates in parts.

    FormatError when the model's logits are not finite, or all zero.
    """
    n_together = model.n_free or 1  # without a free one opening it says so
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
    """The scores of its tasks. FormatError: see `score`."""
    flat = [candidate for task in group.tasks for candidate in task]
    means: list[float] = []
    processed: list[int] = []
    for begin in range(0, len(flat), group.n_together):
        part = flat[begin : begin + group.n_together]
        means += _means(model, part)
        # the last token that is scored is only predicted
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
    """Tokens that a and b begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def some_of(tasks: Sequence[T], n: int | None) -> list[T]:
    """n of the tasks in the order in which llama-perplexity draws them; all in their own when there are no more.

    It draws with std::mt19937 of seed 1, and multiplies in f32; HellaSwag's are drawn by a distribution whose numbers
    depend on the C++ library.
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
    """Of the share of right answers among n: sqrt(p (1 - p) / (n - 1)), as llama-perplexity has it; None for n = 1."""
    return math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else None
